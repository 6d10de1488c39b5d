"""Which runs are compared?

The reference is the user's script as it is: plain Keras on one device. Every other run starts from its
weights and sees its data. To the bit, runs of the same logical replicas are compared, with that on one device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfscale.errors import ParityError

REFERENCE = "reference"
CONTROL = "control"
TFSCALE = "tfscale"
KERAS = "keras"
BITWISE = "bitwise"

# On which numbers of devices bits are compared, besides as many as there are logical replicas.
_DEVICES = (1, 2, 3)


@dataclass(frozen=True)
class RunSpec:
    """One run of the user's script.

    Args:
        kind: `REFERENCE`, plain Keras on one device; `CONTROL`, the same from weights that are one
            float rounding away; `TFSCALE`; `KERAS`, plain Keras under tf.distribute; `BITWISE`, logical
            replicas with `deterministic=True`.
        num_replicas: Replicas of the run.
        num_workers: Processes; with several, each has one replica.
        logical_replicas: Of a `BITWISE` run.
        in_float64: Whether the script's `floatx` is float64, where rounding is nothing that training amplifies.
    """

    kind: str
    num_replicas: int = 1
    num_workers: int = 1
    logical_replicas: int | None = None
    in_float64: bool = False

    def __str__(self) -> str:
        return self._named() + (", in float64" if self.in_float64 else "")

    def _named(self) -> str:
        if self.kind == REFERENCE:
            return "plain Keras on one device"
        if self.kind == CONTROL:
            return "plain Keras on one device, from weights one rounding away"
        if self.kind == BITWISE:
            noun = "device" if self.num_workers == 1 else "worker"
            count = self.num_replicas
            return f"{count} {noun}{'s' if count > 1 else ''}"
        if self.num_workers > 1:
            return f"{self.kind}, {self.num_workers} workers"
        return f"{self.kind}, {self.num_replicas} replica{'s' if self.num_replicas > 1 else ''}"


def choose_runs(num_replicas: Sequence[int], *, workers: int | None, against: str | None) -> tuple[RunSpec, ...]:
    """Returns the runs to compare with the reference, in the order of the table.

    Args:
        num_replicas: Replica counts of runs in one process; none are needed beside `workers`.
        workers: Worker processes of one more run; None for no such run.
        against: `"keras"` to add plain Keras under tf.distribute for each run of several replicas.

    Raises:
        ParityError: When a count is no positive integer or there twice, or `against` is unknown.

    Example:
        >>> [str(run) for run in choose_runs((1, 2), workers=None, against="keras")]
        ['tfscale, 1 replica', 'tfscale, 2 replicas', 'keras, 2 replicas']
    """
    counts = tuple(num_replicas) if isinstance(num_replicas, Sequence) else (num_replicas,)
    _check_counts(counts, workers, num_replicas)
    if against not in (None, KERAS):
        raise ParityError(
            f"`against` must be None or 'keras'.\n"
            f"Received: against={against!r}. Leave it out to compare tfscale with one device only."
        )
    runs = [RunSpec(TFSCALE, count) for count in counts]
    if workers is not None:
        runs.append(RunSpec(TFSCALE, workers, workers))
    if against == KERAS:
        # On one replica, plain Keras is the reference.
        runs += [RunSpec(KERAS, r.num_replicas, r.num_workers) for r in runs if r.num_replicas > 1]
    return tuple(runs)


def choose_bitwise_runs(
    num_replicas: Sequence[int] | None, *, workers: int | None, logical_replicas: int
) -> tuple[RunSpec, ...]:
    """Returns the runs whose bits are compared; with those of the first, on one device.

    Args:
        num_replicas: Numbers of devices of one process; None for 1, 2, 3 and as many as logical replicas.
        workers: Worker processes of one more run; None for no such run.
        logical_replicas: Of every run.

    Raises:
        ParityError: When a count is no positive integer, there twice, or larger than `logical_replicas`, or there is
            nothing to compare.

    Example:
        >>> [str(run) for run in choose_bitwise_runs(None, workers=2, logical_replicas=4)]
        ['1 device', '2 devices', '3 devices', '4 devices', '2 workers']
    """
    if not _is_count(logical_replicas, least=2):
        raise ParityError(
            "`logical_replicas` must be an integer of 2 or more: runs of one are on one device.\n"
            f"Received: logical_replicas={logical_replicas!r}. Give the most devices that the run may have."
        )
    if num_replicas is None:
        counts = tuple(sorted({count for count in (*_DEVICES, logical_replicas) if count <= logical_replicas}))
    else:
        counts = tuple(num_replicas) if isinstance(num_replicas, Sequence) else (num_replicas,)
    _check_counts(counts, workers, num_replicas)
    most = max((*counts, workers or 1))
    if most > logical_replicas:
        raise ParityError(
            f"Logical replicas ({logical_replicas}) must be at least as many as the devices that run them.\n"
            f"Received: num_replicas={num_replicas!r}, workers={workers}. Compare fewer, or give "
            f"logical_replicas={most} or more."
        )
    if set(counts) <= {1} and workers is None:
        raise ParityError(
            "The bits of a run on one device are compared with those on others.\n"
            f"Received: num_replicas={num_replicas!r}, and no `workers`. Give numbers of devices, such as (1, 2, 3)."
        )
    numbers = [(1, 1), *((count, 1) for count in counts if count != 1)]
    if workers is not None:
        numbers.append((workers, workers))
    return tuple(RunSpec(BITWISE, *each, logical_replicas) for each in numbers)


def _check_counts(counts: tuple[Any, ...], workers: Any, num_replicas: Any) -> None:
    nothing = not counts and workers is None
    if nothing or not all(map(_is_count, counts)) or len(set(counts)) != len(counts):
        raise ParityError(
            "`num_replicas` must be positive integers, each once.\n"
            f"Received: num_replicas={num_replicas!r}. Give the counts to compare, such as (2, 3)."
        )
    if workers is not None and not _is_count(workers, least=2):
        raise ParityError(
            "`workers` must be an integer of 2 or more, or None.\n"
            f"Received: workers={workers!r}. Runs of one process are asked for by `num_replicas`."
        )


def _is_count(value: Any, least: int = 1) -> bool:
    # bool is an int to Python; True replicas are a mistake.
    return type(value) is int and value >= least
