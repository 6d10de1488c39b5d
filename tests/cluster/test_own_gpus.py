"""Which GPUs a process sees, by UUID. No driver is asked: there is none where these tests run."""

import pytest

from tfscale import LaunchError
from tfscale.cluster.nvml import Driver, Gpu
from tfscale.cluster.own_gpus import own_gpus, uuids_in_order

ALIKE = (Gpu(0, "GPU-aa01", "Tesla T4"), Gpu(1, "GPU-bb02", "Tesla T4"), Gpu(2, "GPU-bb03", "Tesla T4"))
MIXED = (Gpu(0, "GPU-aa01", "Tesla T4"), Gpu(1, "GPU-bb02", "A100"))
CUT = (Gpu(0, "GPU-aa01", "A100", slices=("MIG-c1", "MIG-c2")), Gpu(1, "GPU-bb02", "A100"))


@pytest.mark.parametrize(
    ("gpus", "environ", "expected"),
    [
        (ALIKE, {}, ["GPU-aa01", "GPU-bb02", "GPU-bb03"]),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "2, 0"}, ["GPU-bb03", "GPU-aa01"]),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "1,-1,0"}, ["GPU-bb02"]),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": ""}, []),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "GPU-bb03,GPU-a"}, ["GPU-bb03", "GPU-aa01"]),
        # One that does not exist, and a beginning that two have.
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "7,GPU-bb"}, ["", ""]),
        # Which kind CUDA takes for the fastest, nobody knows.
        (MIXED, {"CUDA_VISIBLE_DEVICES": "0,GPU-bb02"}, ["", "GPU-bb02"]),
        (MIXED, {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ["GPU-bb02"]),
        (CUT, {"CUDA_VISIBLE_DEVICES": "MIG-c2,0,1"}, ["MIG-c2", "", "GPU-bb02"]),
    ],
)
def test_uuids_in_order(gpus, environ, expected):
    assert uuids_in_order(environ, gpus) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["/physical_device:GPU:0", "/physical_device:GPU:1"], ("GPU-bb03", "GPU-aa01")),
        # A script that took one of them.
        (["/physical_device:GPU:1"], ("GPU-aa01",)),
        (["/physical_device:GPU:5"], ()),
        (["/physical_device:CPU:0"], ()),
        ([], ()),
    ],
)
def test_a_script_may_have_chosen_among_them(names, expected):
    assert own_gpus({"CUDA_VISIBLE_DEVICES": "2,0"}, names, lambda: Driver("550", ALIKE)) == expected


def test_a_driver_that_cannot_be_asked_keeps_nobody_from_training():
    def ask():
        raise LaunchError("The NVIDIA driver must list the GPUs.\nReceived: none.")

    assert own_gpus({}, ["/physical_device:GPU:0"], ask) == ()
