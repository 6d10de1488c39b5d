"""What NVML answers, on hosts that are not here: its functions are replaced, its exceptions are the real ones."""

import sys
import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tfscale import LaunchError
from tfscale.cluster.nvml import NOT_INSTALLED, NOT_LOADED, SIGNS, Driver, Gpu, ask_driver, list_gpus

GIB = 2**30


@dataclass
class Device:
    """What the fake driver answers of one GPU, or of one slice; an exception is raised."""

    uuid: Any
    name: Any = "NVIDIA A100-SXM4-40GB"
    memory: Any = (40 * GIB, GIB)
    mig: Any = (0, 0)
    slices: tuple = ()


def answer(value):
    if isinstance(value, Exception):
        raise value
    return value


@pytest.fixture
def host(monkeypatch):
    """A host whose driver answers; `calls` says how often it was opened and closed."""
    found = SimpleNamespace(devices=[], version="550.54.15", init=None, calls=[])

    def memory(device):
        total, used = answer(device.memory)
        return SimpleNamespace(total=total, used=used, free=total - used)

    fakes = {
        "nvmlInit": lambda: answer(found.init) or found.calls.append("init"),
        "nvmlShutdown": lambda: found.calls.append("shutdown"),
        "nvmlSystemGetDriverVersion": lambda: answer(found.version),
        "nvmlDeviceGetCount": lambda: len(found.devices),
        "nvmlDeviceGetHandleByIndex": lambda index: answer(found.devices[index]),
        "nvmlDeviceGetName": lambda device: answer(device.name),
        "nvmlDeviceGetUUID": lambda device: answer(device.uuid),
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetMigMode": lambda device: answer(device.mig),
        "nvmlDeviceGetMaxMigDeviceCount": lambda device: len(device.slices),
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda device, place: answer(device.slices[place]),
    }
    for name, fake in fakes.items():
        assert callable(getattr(pynvml, name))
        monkeypatch.setattr(pynvml, name, fake)
    return found


def test_gpus_and_their_driver(host):
    host.devices = [Device("GPU-a"), Device("GPU-b", "Tesla T4", (16 * GIB, 0))]
    assert ask_driver() == Driver(
        "550.54.15",
        (
            Gpu(0, "GPU-a", "NVIDIA A100-SXM4-40GB", 40 * GIB, GIB),
            Gpu(1, "GPU-b", "Tesla T4", 16 * GIB, 0),
        ),
    )
    assert list_gpus() == ask_driver().gpus
    assert host.calls == ["init", "shutdown"] * 3


def test_older_releases_give_bytes(host):
    host.devices = [Device(b"GPU-a", b"Tesla T4", slices=(Device(b"MIG-c"),), mig=[1, 1])]
    host.version = b"470.57.02"
    assert ask_driver() == Driver("470.57.02", (Gpu(0, "GPU-a", "Tesla T4", 40 * GIB, GIB, ("MIG-c",)),))


@pytest.mark.parametrize(
    ("mig", "slices", "found"),
    [
        ((0, 0), (), None),
        # Switched on or off at the next reset.
        ((0, 1), (), None),
        ((1, 0), ("MIG-c",), ("MIG-c",)),
        ((1, 1), (), ()),
        ((1, 1), (pynvml.NVMLError_NotFound(),) * 7, ()),
        (
            (1, 1),
            ("MIG-c", pynvml.NVMLError_NotFound(), "MIG-d", pynvml.NVMLError_InvalidArgument()),
            ("MIG-c", "MIG-d"),
        ),
        ((1, 1), (pynvml.NVMLError_NoPermission(), "MIG-d"), ("MIG-d",)),
        (pynvml.NVMLError_NotSupported(), (), None),
        (pynvml.NVMLError_FunctionNotFound(), (), None),
    ],
)
def test_slices(host, mig, slices, found):
    host.devices = [Device("GPU-a", mig=mig, slices=tuple(map(make_slice, slices)))]
    assert [gpu.slices for gpu in list_gpus()] == [found]


def make_slice(uuid):
    return uuid if isinstance(uuid, Exception) else Device(uuid)


@pytest.mark.parametrize("error", [pynvml.NVMLError_NotSupported(), pynvml.NVMLError_NoPermission()])
def test_memory_that_is_not_told(host, error):
    host.devices = [Device("GPU-a", memory=error)]
    assert list_gpus() == (Gpu(0, "GPU-a", "NVIDIA A100-SXM4-40GB"),)


def test_gpu_of_others_is_left_out_and_keeps_its_number(host):
    host.devices = [pynvml.NVMLError_NoPermission(), Device("GPU-b")]
    assert [(gpu.index, gpu.uuid) for gpu in list_gpus()] == [(1, "GPU-b")]


def test_driver_without_gpus(host):
    assert ask_driver() == Driver("550.54.15")


@pytest.mark.parametrize(
    ("error", "absence"),
    [(pynvml.NVMLError_LibraryNotFound(), NOT_INSTALLED), (pynvml.NVMLError_DriverNotLoaded(), NOT_LOADED)],
)
def test_no_driver_has_no_gpus(host, tmp_path, error, absence):
    host.init = error
    (tmp_path / "version").touch()
    # A container without GPUs sees the version of the host's driver all the same.
    assert ask_driver(signs=(tmp_path / "nvidiactl", tmp_path / "version")) == Driver(absence=absence)
    assert host.calls == []


def test_device_without_the_library_is_not_taken_for_a_host_without_gpus(host, tmp_path):
    host.init = pynvml.NVMLError_LibraryNotFound()
    (tmp_path / "nvidiactl").touch()
    with pytest.raises(LaunchError, match="NVIDIA_DRIVER_CAPABILITIES=compute,utility, or set CUDA_VISIBLE_DEVICES"):
        ask_driver(signs=(tmp_path / "nvidiactl",))


@pytest.mark.parametrize(
    "error",
    [
        pynvml.NVMLError_LibRmVersionMismatch(),
        pynvml.NVMLError_NoPermission(),
        pynvml.NVMLError_Unknown(),
        pynvml.NVMLError(12345),
    ],
)
def test_driver_that_cannot_be_opened_is_an_error(host, error):
    host.init = error
    with pytest.raises(LaunchError, match=r"^The NVIDIA driver must list the GPUs\.\nReceived: ") as caught:
        list_gpus()
    assert "Repair the driver, or set CUDA_VISIBLE_DEVICES to the GPUs to use, or to -1 for none" in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"devices": [Device("GPU-a"), pynvml.NVMLError_GpuIsLost()]},
        {"devices": [Device(pynvml.NVMLError_GpuIsLost())]},
        {"devices": [Device("GPU-a", memory=pynvml.NVMLError_Unknown())]},
        {"devices": [Device("GPU-a", mig=pynvml.NVMLError_Unknown())]},
        {"devices": [Device("GPU-a", mig=(1, 1), slices=(pynvml.NVMLError_GpuIsLost(),))]},
        {"version": pynvml.NVMLError_Unknown()},
    ],
)
def test_driver_that_fails_is_closed_and_an_error(host, changed):
    vars(host).update(changed)
    with pytest.raises(LaunchError, match=r"Received: (GPU is lost|Unknown Error)\."):
        list_gpus()
    assert host.calls == ["init", "shutdown"]


def test_driver_that_does_not_answer(host, monkeypatch):
    event = threading.Event()
    monkeypatch.setattr(pynvml, "nvmlInit", event.wait)
    with pytest.raises(LaunchError, match=r"Received: no answer within 0\.1 s\. Repair the driver"):
        ask_driver(timeout_s=0.1)
    event.set()
    for thread in [each for each in threading.enumerate() if each.name == "tfscale-nvml"]:
        thread.join(60)


def test_without_the_package_a_host_with_a_driver_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (tmp_path / "version").touch()
    with pytest.raises(LaunchError, match="nvidia-ml-py must be installed to list the GPUs") as caught:
        ask_driver(signs=(tmp_path / "nvidiactl", tmp_path / "version"))
    assert f"on a host with an NVIDIA driver ({tmp_path / 'version'})" in str(caught.value)
    assert 'pip install "tfscale[gpu]", or set CUDA_VISIBLE_DEVICES' in str(caught.value)


def test_without_the_package_a_host_without_a_driver_has_no_gpus(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert ask_driver(signs=(tmp_path / "nvidiactl",)) == Driver(absence=NOT_INSTALLED)


@pytest.mark.skipif(any(sign.exists() for sign in SIGNS), reason="a driver runs here")
def test_this_host_has_no_driver():
    assert ask_driver() == Driver(absence=NOT_INSTALLED)
