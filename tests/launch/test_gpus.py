import dataclasses

import pytest

from tfscale import LaunchError
from tfscale.cluster.nvml import Gpu
from tfscale.launch.gpus import divide_gpus, find_gpus, name_gpus

ZERO, ONE, TWO = (Gpu(index, f"GPU-{index}", "NVIDIA A100-SXM4-40GB") for index in range(3))


def cut(gpu, *slices):
    return dataclasses.replace(gpu, slices=slices)


@pytest.mark.parametrize(
    ("gpus", "names"),
    [
        ([], []),
        ([ZERO, ONE], ["0", "1"]),
        ([cut(ZERO, "MIG-c7f1", "MIG-a3b2"), ONE], ["MIG-c7f1", "MIG-a3b2", "1"]),
        ([ZERO, cut(ONE, "MIG-c7f1")], ["0", "MIG-c7f1"]),
        # In MIG mode, but nobody has made slices: nothing runs there.
        ([ZERO, cut(ONE)], ["0"]),
        # The number 0 belongs to one that this process may not use; CUDA calls the next one 0.
        ([ONE, TWO], ["GPU-1", "GPU-2"]),
        ([ZERO, TWO], ["GPU-0", "GPU-2"]),
    ],
)
def test_names(gpus, names):
    assert name_gpus(gpus) == tuple(names)


def test_gpus_that_are_all_cut_into_nothing_are_not_left_for_cpus():
    with pytest.raises(LaunchError, match=r"Received: 2 GPU\(s\) in MIG mode, and no slice.*CUDA_VISIBLE_DEVICES=-1"):
        name_gpus([cut(ZERO), cut(ONE)])


@pytest.mark.parametrize(
    ("environ", "gpus"),
    [
        ({}, ["0", "1"]),
        ({"CUDA_VISIBLE_DEVICES": "3,1"}, ["3", "1"]),
        ({"CUDA_VISIBLE_DEVICES": " 0, GPU-5d "}, ["0", "GPU-5d"]),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, ["0"]),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_find(environ, gpus):
    assert find_gpus(environ, lambda: [ZERO, ONE]) == tuple(gpus)


def test_variable_spares_the_listing():
    assert find_gpus({"CUDA_VISIBLE_DEVICES": "0"}, list_gpus=None) == ("0",)


@pytest.mark.parametrize(
    ("gpus", "num_workers", "per_worker", "shares"),
    [
        ("", 3, None, [None, None, None]),
        ("", 2, 1, [None, None]),
        ("0", 1, None, ["0"]),
        ("0 1 2 3", 2, None, ["0,1", "2,3"]),
        ("0 1 2 3", 2, 1, ["0", "1"]),
        ("0 1 2 3", 1, 3, ["0,1,2"]),
        ("0 1 2", 2, None, ["0", "1"]),
        ("5 4", 2, 1, ["5", "4"]),
    ],
)
def test_divide(gpus, num_workers, per_worker, shares):
    assert divide_gpus(gpus.split(), num_workers, per_worker) == shares


@pytest.mark.parametrize(
    ("gpus", "shown"),
    [("0 1 2", r"2 worker\(s\) with 2 GPU\(s\) each"), ("", r"--replicas-per-worker 2. Raise --workers")],
)
def test_gpus_that_do_not_go_round(gpus, shown):
    with pytest.raises(LaunchError, match=shown):
        divide_gpus(gpus.split(), 2, per_worker=2)


def test_fewer_gpus_than_workers():
    with pytest.raises(LaunchError, match=r"Received: 3 workers and 2 GPU\(s\), 0,1"):
        divide_gpus(["0", "1"], 3)
