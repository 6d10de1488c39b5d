"""Which cores does each worker of this host get, and how many threads?"""

import itertools
from collections.abc import Mapping, Sequence

from tfscale.errors import LaunchError

_OMP = "OMP_NUM_THREADS"
_INTRA_OP = "TF_NUM_INTRAOP_THREADS"
_INTER_OP = "TF_NUM_INTEROP_THREADS"


def divide_cores(cores: Sequence[int], num_workers: int, per_worker: int | None = None) -> list[tuple[int, ...]]:
    """Returns the cores of each worker.

    Args:
        cores: The cores to divide.
        num_workers: The workers of this host.
        per_worker: Cores for each; by default all are divided. Workers share all cores where there are fewer
            cores than workers.

    Raises:
        LaunchError: `per_worker` asks for more cores than there are.

    Example:
        >>> from tfscale.launch.cores import divide_cores
        >>> divide_cores([0, 1, 2, 3, 4], 2)
        [(0, 1), (2, 3, 4)]
    """
    if per_worker is not None:
        if per_worker * num_workers > len(cores):
            raise LaunchError(
                f"The workers of this host must fit on its {len(cores)} core(s).\n"
                f"Received: {num_workers} workers with {per_worker} core(s) each. "
                f"Lower --cores-per-worker, or start fewer workers."
            )
        return [tuple(cores[index * per_worker :][:per_worker]) for index in range(num_workers)]
    if num_workers > len(cores):
        return [tuple(cores)] * num_workers
    ends = [index * len(cores) // num_workers for index in range(num_workers + 1)]
    return [tuple(cores[low:high]) for low, high in itertools.pairwise(ends)]


def count_threads(environ: Mapping[str, str], num_cores: int) -> dict[str, str]:
    """Returns the numbers of threads for a worker with so many cores, those that the user has not set.

    Without them, every worker starts as many threads as the machine has cores.
    """
    # Two ops at least may wait at a time: one for its peers, another one for its input.
    wanted = {_OMP: num_cores, _INTRA_OP: num_cores, _INTER_OP: max(2, num_cores)}
    return {name: str(count) for name, count in wanted.items() if name not in environ}
