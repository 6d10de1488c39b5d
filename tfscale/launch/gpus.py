"""Which GPUs does each worker of this host get?"""

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence

from tfscale.errors import LaunchError

VISIBLE = "CUDA_VISIBLE_DEVICES"

_GPU = re.compile(r"GPU (\d+): ")
_SLICE = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")
_TIMEOUT_S = 60


def find_gpus(environ: Mapping[str, str], list_gpus: Callable[[], str]) -> tuple[str, ...]:
    """Returns the GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them.

    Args:
        environ: Where that variable is set, it decides, as for CUDA: a list that ends before the first `-1`.
        list_gpus: Returns what `nvidia-smi -L` prints; called where the variable is not set.

    Example:
        >>> from tfscale.launch.gpus import find_gpus
        >>> find_gpus({"CUDA_VISIBLE_DEVICES": "2,3"}, list_gpus=lambda: "")
        ('2', '3')
        >>> find_gpus({}, list_gpus=lambda: "GPU 0: Tesla T4 (UUID: GPU-1)")
        ('0',)
    """
    if VISIBLE not in environ:
        return _read_listing(list_gpus())
    names = [name.strip() for name in environ[VISIBLE].split(",")]
    ends = [index for index, name in enumerate(names) if name in ("", "-1")]
    return tuple(names[: ends[0]] if ends else names)


def divide_gpus(gpus: Sequence[str], num_workers: int, per_worker: int | None = None) -> list[str | None]:
    """Returns the `CUDA_VISIBLE_DEVICES` of each worker: equally many for all; None where there is no GPU.

    Args:
        gpus: The GPUs to divide.
        num_workers: The workers of this host.
        per_worker: GPUs, and so replicas, for each; by default as many as all can have.

    Raises:
        LaunchError: The GPUs do not go round.

    Example:
        >>> from tfscale.launch.gpus import divide_gpus
        >>> divide_gpus(["0", "1", "2", "3", "4"], 2)
        ['0,1', '2,3']
    """
    if not gpus and per_worker in (None, 1):
        return [None] * num_workers
    if not gpus:
        raise LaunchError(
            f"A worker on a host without GPUs must have one replica: TensorFlow joins one CPU of each worker.\n"
            f"Received: --replicas-per-worker {per_worker}. Raise --workers instead, or call "
            f"tfscale.simulate_replicas({per_worker}) in a script of one worker."
        )
    # Every worker must have the same number of replicas: TensorFlow counts on it.
    share = per_worker or len(gpus) // num_workers
    if share * num_workers > len(gpus):
        raise LaunchError(
            f"The workers of this host must fit on its {len(gpus)} GPU(s), {','.join(gpus)}.\n"
            f"Received: {num_workers} worker(s) with {share} GPU(s) each. "
            f"Lower --replicas-per-worker, or start fewer workers."
        )
    if share == 0:
        raise LaunchError(
            f"Each worker on a host with GPUs must get one at least.\n"
            f"Received: {num_workers} workers and {len(gpus)} GPU(s), {','.join(gpus)}. "
            f"Start fewer workers, or set {VISIBLE}=-1 to train on CPUs."
        )
    return [",".join(gpus[rank * share : (rank + 1) * share]) for rank in range(num_workers)]


def run_nvidia_smi() -> str:
    """Returns what `nvidia-smi -L` prints; nothing where there is no such program or no driver."""
    try:
        ended = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError:
        return ""
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(
            f"`nvidia-smi -L` must list the GPUs.\n"
            f"Received: {error}. Repair the driver, or set {VISIBLE} to the GPUs to use, or to -1 for none."
        ) from error
    # It fails where the program is installed, but no driver runs: an image made for GPUs, on a host without.
    return ended.stdout if ended.returncode == 0 else ""


def _read_listing(listing: str) -> tuple[str, ...]:
    """Returns the numbers of the GPUs; of one that is cut into slices, the slices' names."""
    found: list[str] = []
    cut = ""
    for line in listing.splitlines():
        if match := _GPU.match(line):
            found.append(match[1])
            cut = match[1]
        elif match := _SLICE.match(line):
            found = [name for name in found if name != cut] + [match[1]]
    return tuple(found)
