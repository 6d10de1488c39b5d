"""Whom does each worker have to reach, and who tells it what to do?"""

MAX_ALL_PAIRS = 16
"""In a job of so many workers, or fewer, each reaches all others."""
_FAN_OUT = 32


def find_partners(rank: int, num_workers: int) -> frozenset[int]:
    """Returns the ranks to which a worker has to connect.

    Up to 16 workers these are all others. In a larger job they are, for N workers and rank r,

    - 0, where TensorFlow's coordination service is and collectives begin, and the worker that it reports to;
    - r - 1 and r + 1 modulo N, the ring in which TensorFlow and NCCL add up and gather;
    - (r - 1) // 2, from which it gets what the chief broadcasts;
    - r - 2^k modulo N, for every 2^k below N: the branches of NCCL's trees, in one of the two directions.

    That is log2(N) + 4 of N at most. Where two workers do not reach each other of which neither is the other's partner,
    nobody finds out: no collective sends anything between them.

    Args:
        rank: Of the worker.
        num_workers: Of the job.

    Example:
        >>> from tfscale.cluster.preflight.layout import find_partners
        >>> sorted(find_partners(1, 4))
        [0, 2, 3]
        >>> sorted(find_partners(500, 1000))
        [0, 15, 244, 249, 372, 436, 468, 484, 492, 496, 498, 499, 501, 988]
    """
    if num_workers <= MAX_ALL_PAIRS:
        return frozenset(range(num_workers)) - {rank}
    found = {(rank - (1 << power)) % num_workers for power in range((num_workers - 1).bit_length())}
    found |= {0, find_parent(rank), (rank + 1) % num_workers, max(rank - 1, 0) // 2}
    return frozenset(found - {rank})


def find_parent(rank: int) -> int:
    """Returns to whom a worker reports: each of the ranks has 32 that report to it, as far as there are so many.

    Example:
        >>> from tfscale.cluster.preflight.layout import find_parent
        >>> [find_parent(rank) for rank in (1, 32, 33, 64, 65, 999)]
        [0, 0, 1, 1, 2, 31]
    """
    return max(rank - 1, 0) // _FAN_OUT


def find_children(rank: int, num_workers: int) -> range:
    """Returns those that report to a worker.

    Example:
        >>> from tfscale.cluster.preflight.layout import find_children
        >>> find_children(0, 4), find_children(31, 1000), find_children(32, 1000)
        (range(1, 4), range(993, 1000), range(0, 0))
    """
    first = rank * _FAN_OUT + 1
    return range(first, min(first + _FAN_OUT, num_workers)) if first < num_workers else range(0)
