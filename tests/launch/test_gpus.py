import pytest

from tfscale import LaunchError
from tfscale.launch.gpus import divide_gpus, find_gpus, run_nvidia_smi

TWO = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-05f4a1b2)
"""
CUT = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6)
  MIG 3g.20gb     Device  0: (UUID: MIG-c7f1)
  MIG 3g.20gb     Device  1: (UUID: MIG-a3b2)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-05f4a1b2)
"""


@pytest.mark.parametrize(
    ("environ", "listing", "gpus"),
    [
        ({}, TWO, ["0", "1"]),
        ({}, CUT, ["MIG-c7f1", "MIG-a3b2", "1"]),
        ({}, "", []),
        ({}, "NVIDIA-SMI has failed because it could not communicate with the driver.", []),
        ({"CUDA_VISIBLE_DEVICES": "3,1"}, TWO, ["3", "1"]),
        ({"CUDA_VISIBLE_DEVICES": " 0, GPU-5d "}, TWO, ["0", "GPU-5d"]),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, TWO, ["0"]),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, TWO, []),
        ({"CUDA_VISIBLE_DEVICES": ""}, TWO, []),
    ],
)
def test_find(environ, listing, gpus):
    assert find_gpus(environ, lambda: listing) == tuple(gpus)


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


@pytest.mark.parametrize(
    ("script", "listing"), [("echo GPU 0: x", "GPU 0: x\n"), ("echo no driver; exit 9", ""), (None, "")]
)
def test_nvidia_smi(monkeypatch, tmp_path, script, listing):
    if script:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_nvidia_smi() == listing


def test_nvidia_smi_that_cannot_run(monkeypatch, tmp_path):
    (tmp_path / "nvidia-smi").write_text("no program")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match="must list the GPUs"):
        run_nvidia_smi()
