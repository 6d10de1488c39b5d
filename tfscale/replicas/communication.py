"""Which devices become replicas, and which collective implementation joins them?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tfscale.errors import DeviceError
from tfscale.replicas.packs import Packing


class Communication(NamedTuple):
    """A choice and why it was made."""

    implementation: str
    """`"nccl"`, `"ring"`, or `"none"` for a single replica."""
    reason: str


def choose_communication(
    device_types: Sequence[str],
    *,
    num_workers: int = 1,
    platform: str = "linux",
    virtual_gpus: bool = False,
    requested: str = "auto",
) -> Communication:
    """Chooses the collective implementation for the replicas of one worker.

    Args:
        device_types: One of `"CPU"` or `"GPU"` per replica of this worker.
        num_workers: Workers of the job; each has as many replicas as this one.
        platform: As `sys.platform`; NCCL exists for Linux.
        virtual_gpus: Whether several logical GPUs share a physical one, which NCCL refuses.
        requested: As `Network` has it: `"auto"`, or the user's own choice, `"nccl"` or `"ring"`.

    Returns:
        The implementation and a sentence that says why.

    Raises:
        DeviceError: When the devices are mixed, or NCCL is requested where it cannot run.

    Example:
        >>> choose_communication(["GPU"] * 8)
        Communication(implementation='nccl', reason='all 8 replicas are physical GPUs')
        >>> choose_communication(["CPU"] * 4).implementation
        'ring'
        >>> choose_communication(["GPU"]).implementation
        'none'
    """
    kinds = set(device_types)
    if not kinds <= {"CPU", "GPU"} or len(kinds) != 1:
        raise DeviceError(
            "The replicas of a worker must all be GPUs or all be CPUs.\n"
            f"Received: {list(device_types)}. Name devices of one kind."
        )
    obstacle = _nccl_obstacle(device_types, platform, virtual_gpus)
    if requested == "nccl" and obstacle:
        raise DeviceError(f'NCCL cannot be used: {obstacle}.\nReceived: communication=\'nccl\'. Use "auto" or "ring".')
    if num_workers * len(device_types) == 1:
        return Communication("none", "a single replica has nothing to reduce")
    if requested != "auto":
        return Communication(requested, "it was asked for")
    if obstacle:
        return Communication("ring", obstacle)
    return Communication("nccl", f"all {len(device_types)} replicas are physical GPUs")


def _nccl_obstacle(device_types: Sequence[str], platform: str, virtual_gpus: bool) -> str:
    if set(device_types) != {"GPU"}:
        return "there is no GPU among the replicas"
    if virtual_gpus:
        return "several logical GPUs share a physical one, which NCCL refuses"
    if not platform.startswith("linux"):
        return f"NCCL does not exist on {platform}"
    return ""


def measures_link(devices: Sequence[str], num_workers: int, packing: Packing) -> bool:
    """Whether there is a link between the replicas, and something to choose by it.

    Args:
        devices: Of this worker, such as `["GPU:0"]`.
        num_workers: Workers of the job.
        packing: As the user wants it.

    Example:
        >>> from tfscale.replicas.packs import Packing
        >>> [measures_link(["CPU:0", "CPU:1"], workers, Packing(None)) for workers in (1, 2)]
        [False, True]
        >>> measures_link(["GPU:0", "GPU:1"], 1, Packing(None)), measures_link(["GPU:0"], 2, Packing(bytes_per_pack=0))
        (True, False)
    """
    several = num_workers > 1 or (len(devices) > 1 and devices[0].startswith("GPU"))
    return several and packing.bytes_per_pack != 0


def choose_devices(requested: str | int | Sequence[str], available: Sequence[str]) -> list[str]:
    """Resolves the `devices` argument to logical device names.

    Args:
        requested: `"auto"` (every GPU, else every logical CPU), a number of replicas, one device name, or a list
            of names such as `["GPU:0", "GPU:1"]`.
        available: Names of this process's logical devices, such as `["CPU:0", "GPU:0"]`.

    Returns:
        Device names in the order of the replicas.

    Raises:
        DeviceError: When a name is unknown or repeated, or there are fewer devices than asked for.

    Example:
        >>> choose_devices("auto", ["CPU:0", "GPU:0", "GPU:1"])
        ['GPU:0', 'GPU:1']
        >>> choose_devices(2, ["CPU:0", "CPU:1", "CPU:2"])
        ['CPU:0', 'CPU:1']
    """
    gpus = [name for name in available if name.startswith("GPU:")]
    usable = gpus or [name for name in available if name.startswith("CPU:")]
    if requested == "auto":
        return usable
    if isinstance(requested, int) and not isinstance(requested, bool):
        if not 1 <= requested <= len(usable):
            raise DeviceError(
                f"`devices` must be between 1 and the number of devices here ({len(usable)}).\n"
                f"Received: devices={requested}. On a machine without GPUs, call "
                f"tfscale.simulate_replicas({requested}) first."
            )
        return usable[:requested]
    names: list[object] = list(requested) if isinstance(requested, list | tuple) else [requested]
    resolved = [_canonical(name) for name in names]
    unknown = [name for name, device in zip(names, resolved, strict=True) if device not in available]
    if unknown or not names or len(set(resolved)) != len(resolved):
        problem = f"unknown: {unknown}" if unknown else "empty" if not names else "repeated"
        raise DeviceError(
            "`devices` must name logical devices of this process, each once.\n"
            f"Received: devices={requested!r} ({problem}). Available: {', '.join(available)}."
        )
    return resolved


def _canonical(name: object) -> str:
    """`"/device:gpu:1"`, `"/gpu:1"` and `"GPU:1"` are the same device."""
    parts = str(name).rsplit("/", 1)[-1].upper().removeprefix("DEVICE:")
    return parts
