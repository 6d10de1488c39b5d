"""What does the NVIDIA driver say of this host's GPUs?"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfscale.errors import LaunchError

NOT_INSTALLED, NOT_LOADED = "is not installed", "is not loaded"

_RULE = "The NVIDIA driver must list the GPUs."
_WAY_OUT = "set CUDA_VISIBLE_DEVICES to the GPUs to use, or to -1 for none"
_TIMEOUT_S = 60.0
# Where a driver runs there is its device, what its module tells of itself, or the library that Windows lends to WSL.
SIGNS = (
    Path("/dev/nvidiactl"),
    Path("/proc/driver/nvidia/version"),
    Path("/usr/lib/wsl/lib/libnvidia-ml.so.1"),
)


@dataclass(frozen=True)
class Gpu:
    """One GPU of this host.

    Args:
        index: Its number, in the order of the PCI bus.
        uuid: As "GPU-5d5ba0d6-...".
        name: Of its kind.
        total_bytes: Its memory; None where the driver does not tell this user.
        used_bytes: What is in use of it, by anybody; None likewise.
        slices: Of a GPU that is cut into slices (MIG), their UUIDs, as "MIG-c7f1..."; None of a whole one.
    """

    index: int
    uuid: str
    name: str
    total_bytes: int | None = None
    used_bytes: int | None = None
    slices: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Driver:
    """What the driver of this host says.

    Args:
        version: As "550.54.15"; empty where there is no driver.
        gpus: Those that this process may ask for.
        absence: Why there is no driver, `NOT_INSTALLED` or `NOT_LOADED`; empty where there is one.
    """

    version: str = ""
    gpus: tuple[Gpu, ...] = ()
    absence: str = ""


def list_gpus() -> tuple[Gpu, ...]:
    """Returns the GPUs of this host; none where no driver runs.

    Raises:
        LaunchError: As `ask_driver`.
    """
    return ask_driver().gpus


def ask_driver(*, timeout_s: float = _TIMEOUT_S, signs: Sequence[Path] = SIGNS) -> Driver:
    """Returns what the driver says, by NVML, its own library. No context is made on a GPU.

    Args:
        timeout_s: Seconds that it may take: a driver that is wedged answers nobody.
        signs: Files, one of which is there where a driver runs; the first is its device.

    Raises:
        LaunchError: A driver runs that cannot be asked, or that fails.
    """
    there = [sign for sign in signs if sign.exists()]
    try:
        # Of the extra `gpu`; a host without GPUs needs none.
        import pynvml
    except ImportError as error:
        if not there:
            return Driver(absence=NOT_INSTALLED)
        raise LaunchError(
            "nvidia-ml-py must be installed to list the GPUs.\n"
            f"Received: {error}, on a host with an NVIDIA driver ({there[0]}). "
            f'Install it, pip install "tfscale[gpu]", or {_WAY_OUT}.'
        ) from error
    try:
        return _within(timeout_s, lambda: _ask(pynvml))
    except pynvml.NVMLError_DriverNotLoaded:
        return Driver(absence=NOT_LOADED)
    except pynvml.NVMLError_LibraryNotFound as error:
        # The device without the library: a container that was given the GPUs, but not what lists them.
        if signs[0] not in there:
            return Driver(absence=NOT_INSTALLED)
        raise LaunchError(
            f"{_RULE}\nReceived: {error}, libnvidia-ml.so.1, and yet {signs[0]}. "
            f"Start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility, or {_WAY_OUT}."
        ) from error
    except (pynvml.NVMLError, TimeoutError) as error:
        raise LaunchError(f"{_RULE}\nReceived: {error}. Repair the driver, or {_WAY_OUT}.") from error


def _within(timeout_s: float, ask: Callable[[], Driver]) -> Driver:
    """Returns an answer, or raises what `ask` raises, unless that takes too long: nothing ends a call of the driver."""
    said: list[Driver | Exception] = []

    def run() -> None:
        try:
            said.append(ask())
        except Exception as error:
            said.append(error)

    thread = threading.Thread(target=run, name="tfscale-nvml", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not said:
        raise TimeoutError(f"no answer within {timeout_s:g} s")
    if isinstance(said[0], Exception):
        raise said[0]
    return said[0]


def _ask(pynvml: Any) -> Driver:
    pynvml.nvmlInit()
    try:
        version = _text(pynvml.nvmlSystemGetDriverVersion())
        return Driver(version, tuple(_read_gpu(pynvml, *each) for each in _handles(pynvml)))
    finally:
        pynvml.nvmlShutdown()


def _handles(pynvml: Any) -> Iterator[tuple[int, Any]]:
    """Yields number and handle of each GPU that this process may use; the driver counts the others too."""
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError_NoPermission:
            continue
        yield index, handle


def _read_gpu(pynvml: Any, index: int, handle: Any) -> Gpu:
    total_bytes = used_bytes = None
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        total_bytes, used_bytes = int(memory.total), int(memory.used)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NoPermission):
        # It has the host's memory, or is cut into slices that are somebody else's.
        pass
    name, uuid = (_text(ask(handle)) for ask in (pynvml.nvmlDeviceGetName, pynvml.nvmlDeviceGetUUID))
    return Gpu(index, uuid, name, total_bytes, used_bytes, _list_slices(pynvml, handle))


def _list_slices(pynvml: Any, handle: Any) -> tuple[str, ...] | None:
    try:
        is_cut = pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        # A kind of GPU, or a driver, that cannot cut.
        is_cut = False
    if not is_cut:
        return None
    uuids = []
    for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            uuids.append(_text(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place))))
        except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NoPermission):
            # A place without a slice, or with one that this process may not use.
            continue
    return tuple(uuids)


def _text(said: str | bytes) -> str:
    """Returns text: older releases of nvidia-ml-py give bytes."""
    return said.decode() if isinstance(said, bytes) else said
