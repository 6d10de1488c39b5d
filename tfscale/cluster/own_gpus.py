"""Which GPUs are those that this process sees, whatever it and other processes call them?

NCCL takes one communicator for each GPU: two workers that see the same one end in an error that names neither of them,
or wait for each other. CUDA numbers the GPUs that a process sees from 0 on, so only their UUIDs can be compared.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Mapping, Sequence

from tfscale.cluster.nvml import Driver, Gpu, ask_driver
from tfscale.errors import LaunchError

_log = logging.getLogger(__name__)
VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
# Of a driver that does not answer, nothing is found out.
_TIMEOUT_S = 5.0


def own_gpus(
    environ: Mapping[str, str], device_names: Sequence[str], ask: Callable[[], Driver] | None = None
) -> tuple[str, ...]:
    """Returns the UUIDs of the GPUs that this process uses; none where that cannot be found out.

    Args:
        environ: Where `CUDA_VISIBLE_DEVICES` may be.
        device_names: Of TensorFlow's visible physical devices, as "/physical_device:GPU:0".
        ask: What asks the driver.
    """
    places = [int(found[1]) for name in device_names if (found := re.search(r"GPU:(\d+)$", name))]
    if not places:
        return ()
    try:
        gpus = (ask or _ask)().gpus
    except LaunchError as error:
        _log.debug("nobody knows which GPUs the workers share: %s", error)
        return ()
    seen = uuids_in_order(environ, gpus)
    return tuple(seen[place] for place in places if place < len(seen) and seen[place])


def visible_names(environ: Mapping[str, str]) -> list[str] | None:
    """What `CUDA_VISIBLE_DEVICES` names, as CUDA reads it: up to the first `-1`; None where it is not set.

    Example:
        >>> from tfscale.cluster.own_gpus import visible_names
        >>> visible_names({"CUDA_VISIBLE_DEVICES": "2, GPU-aa01,-1,0"}), visible_names({})
        (['2', 'GPU-aa01'], None)
    """
    if VISIBLE not in environ:
        return None
    names = (name.strip() for name in environ[VISIBLE].split(","))
    return list(itertools.takewhile(lambda name: name not in ("", "-1"), names))


def uuids_in_order(environ: Mapping[str, str], gpus: Sequence[Gpu]) -> list[str]:
    """The UUID of each GPU that CUDA shows, in its order; empty for one that cannot be told.

    Args:
        environ: As `own_gpus`.
        gpus: Of the host, as the driver numbers them: in the order of the PCI bus.

    Example:
        >>> from tfscale.cluster.nvml import Gpu
        >>> from tfscale.cluster.own_gpus import uuids_in_order
        >>> gpus = [Gpu(0, "GPU-aa01", "Tesla T4"), Gpu(1, "GPU-bb02", "Tesla T4")]
        >>> uuids_in_order({"CUDA_VISIBLE_DEVICES": "1,GPU-aa"}, gpus)
        ['GPU-bb02', 'GPU-aa01']
        >>> uuids_in_order({}, gpus)
        ['GPU-aa01', 'GPU-bb02']
    """
    # By default CUDA puts the fastest kind first, and which that is the driver does not say.
    numbers_tell = environ.get(ORDER) == "PCI_BUS_ID" or len({gpu.name for gpu in gpus}) == 1
    by_number = {str(gpu.index): "" if gpu.slices else gpu.uuid for gpu in gpus} if numbers_tell else {}
    uuids = [uuid for gpu in gpus for uuid in (gpu.slices or [gpu.uuid])]
    names = visible_names(environ)
    found = []
    for name in [str(gpu.index) for gpu in gpus] if names is None else names:
        # CUDA takes the beginning of a UUID, too, if there is one alone that begins so.
        same = [uuid for uuid in uuids if uuid.startswith(name)]
        found.append(by_number.get(name, "") if name.isdigit() else same[0] if len(same) == 1 else "")
    return found


def _ask() -> Driver:
    return ask_driver(timeout_s=_TIMEOUT_S)
