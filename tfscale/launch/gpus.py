"""Which GPUs does each worker of this host get?"""

from collections.abc import Callable, Mapping, Sequence

from tfscale.cluster.nvml import Gpu
from tfscale.cluster.own_gpus import VISIBLE, visible_names
from tfscale.errors import LaunchError


def find_gpus(environ: Mapping[str, str], list_gpus: Callable[[], Sequence[Gpu]]) -> tuple[str, ...]:
    """Returns the GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them.

    Args:
        environ: Where that variable is set, it decides, as for CUDA: a list that ends before the first `-1`.
        list_gpus: `nvml.list_gpus`; called where the variable is not set.

    Raises:
        LaunchError: As `list_gpus` and `name_gpus`.

    Example:
        >>> from tfscale.launch.gpus import find_gpus
        >>> from tfscale.cluster.nvml import Gpu
        >>> find_gpus({"CUDA_VISIBLE_DEVICES": "2,3"}, list_gpus=lambda: [])
        ('2', '3')
        >>> find_gpus({}, list_gpus=lambda: [Gpu(0, "GPU-5d5b", "Tesla T4")])
        ('0',)
    """
    names = visible_names(environ)
    return name_gpus(list_gpus()) if names is None else tuple(names)


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


def name_gpus(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Returns what CUDA calls GPUs: their numbers; in the place of one that is cut, the names of its slices.

    Args:
        gpus: In the driver's order. Where it has others in between that this process may not use, CUDA counts anew, so
            that numbers would name other GPUs: then they are called by their UUIDs.

    Raises:
        LaunchError: There are GPUs, and all of them are cut, into no slices.

    Example:
        >>> from tfscale.launch.gpus import name_gpus
        >>> from tfscale.cluster.nvml import Gpu
        >>> name_gpus([Gpu(0, "GPU-5d5b", "A100", slices=("MIG-c7f1", "MIG-a3b2")), Gpu(1, "GPU-05f4", "A100")])
        ('MIG-c7f1', 'MIG-a3b2', '1')
    """
    are_all = [gpu.index for gpu in gpus] == list(range(len(gpus)))
    names: list[str] = []
    for gpu in gpus:
        names += [str(gpu.index) if are_all else gpu.uuid] if gpu.slices is None else gpu.slices
    if gpus and not names:
        raise LaunchError(
            f"A GPU in MIG mode must have a slice to train on.\n"
            f"Received: {len(gpus)} GPU(s) in MIG mode, and no slice that this process may use. Make some, by "
            f"`nvidia-smi mig -cgi`, switch MIG off, or set {VISIBLE}=-1 to train on CPUs."
        )
    return tuple(names)
