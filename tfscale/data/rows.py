"""Which rows of every global batch does each replica take, when the number of examples is known?

Pure arithmetic. A full batch is divided by load, the last one likewise, but so that nobody gets more rows than of a
full batch: then a worker's rows of an epoch are full groups and a last one that is no larger.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tfscale.errors import DataError


@dataclass(frozen=True)
class EpochRows:
    """How the examples of an epoch become steps, and the rows of each step the shares of replicas.

    Args:
        num_examples: Examples in an epoch.
        global_batch: Rows of a full step.
        loads: What each replica of the job takes, in any unit; all equal for equal shares.
        drop_remainder: Whether a smaller last step is left out.
    """

    num_examples: int
    global_batch: int
    loads: tuple[Fraction, ...]
    drop_remainder: bool = False

    @property
    def num_steps(self) -> int:
        """Steps of an epoch."""
        if self.drop_remainder:
            return self.num_examples // self.global_batch
        return -(-self.num_examples // self.global_batch)

    @property
    def last_batch(self) -> int:
        """Rows of the last step."""
        if self.drop_remainder:
            return self.global_batch
        return self.num_examples - (self.num_steps - 1) * self.global_batch

    def bounds(self, rows: int) -> tuple[int, ...]:
        """Where the shares of a step of `rows` rows begin and end: N + 1 rows, from 0 to `rows`."""
        full = divide_rows(self.global_batch, self.loads)
        if rows == self.global_batch:
            return full
        room = [stop - start for start, stop in itertools.pairwise(full)]
        wanted, bounds = divide_rows(rows, self.loads), [0]
        for replica, most in enumerate(room):
            left = sum(room[replica + 1 :])
            bounds.append(max(min(wanted[replica + 1], bounds[-1] + most), rows - left))
        return tuple(bounds)


def divide_rows(rows: int, loads: Sequence[Fraction]) -> tuple[int, ...]:
    """Divides rows by load: replica i gets those from floor(rows * c_i) to floor(rows * c_i+1), c the cumulative share.

    Args:
        rows: How many there are.
        loads: What each replica takes, in any unit.

    Returns:
        N + 1 bounds, from 0 to `rows`.

    Example:
        >>> from tfscale.data.rows import divide_rows
        >>> divide_rows(10, [1, 1, 1])
        (0, 3, 6, 10)
        >>> divide_rows(10, [2, 2, 1])
        (0, 4, 8, 10)
    """
    total = sum(loads)
    return tuple(int(rows * Fraction(reached) / total) for reached in itertools.accumulate(loads, initial=Fraction(0)))


def replica_loads(worker_load: Sequence[float] | None, *, num_workers: int, num_replicas: int) -> tuple[Fraction, ...]:
    """Returns the load of each replica, exactly.

    Args:
        worker_load: One positive number per worker or per replica, in any unit; None for equal shares.
        num_workers: Workers of the job.
        num_replicas: Replicas of the job, the same number on each worker.

    Raises:
        DataError: When there are neither as many loads as workers nor as replicas, or one is no number above 0.
    """
    if worker_load is None:
        return (Fraction(1),) * num_replicas
    if isinstance(worker_load, str) or not isinstance(worker_load, Sequence | np.ndarray):
        raise _load_error(worker_load, "is no list of numbers")
    if len(worker_load) not in (num_workers, num_replicas):
        raise _load_error(worker_load, f"has {len(worker_load)} entries for {num_workers} workers")
    try:
        loads = [Fraction(load) for load in worker_load]
    except (TypeError, ValueError, OverflowError):
        raise _load_error(worker_load, "has an entry that is no finite number") from None
    if min(loads) <= 0:
        raise _load_error(worker_load, "has an entry that is not above 0")
    each = num_replicas // len(loads)
    return tuple(load for load in loads for _ in range(each))


def _load_error(worker_load: object, fault: str) -> DataError:
    return DataError(
        '`worker_load` must give one share of the work, above 0, per worker or per replica, or be "auto".\n'
        f"Received: worker_load={worker_load!r}, which {fault}. Give, for example, worker_load=[1, 1, 0.5]."
    )
