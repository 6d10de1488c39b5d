"""What has this worker read of the job's data: how many batches has each pass had, and which labels?

All workers begin the same passes over the same data sets in the same order, so two numbers name a pass on each of them.
"""

from __future__ import annotations

import collections
import math
import threading
from typing import Any, NamedTuple

# Passes that others may still tell of.
_KEPT = 64
# Likewise of labels: more than are noted while a worker is not heard of, a second or two.
_KEPT_LABELS = 256
# Labels may have been computed, by predictions of a model, in another order of a sum on another worker.
_TOLERANCE = 1e-3
# `data.labels.SumsOfLabels` has as many.
_NUM_SUMS = 9
_LIMIT = 1 << 40


class EndedPass(NamedTuple):
    """A pass over data that was read to its end."""

    data: int = 0
    """Which data set of the job, from 1; 0 where none has ended."""
    number: int = 0
    """Which pass over it, from 1."""
    batches: int = 0
    """How many it had."""


class LabelsSeen(NamedTuple):
    """The labels that a pass has had until some batch."""

    data: int = 0
    """Of which data set of the job, from 1; 0 where none were noted."""
    number: int = 0
    """Of which pass over it, from 1."""
    batches: int = 0
    """How many batches had been read."""
    sums: tuple[float, ...] = ()
    """As `data.labels.SumsOfLabels.numbers`."""

    @property
    def place(self) -> tuple[int, int, int]:
        """At which of all workers' labels these are to be compared."""
        return self.data, self.number, self.batches


def are_same_labels(numbers: Any, others: Any) -> bool:
    """Whether two `SumsOfLabels` are of the same labels, each up to a thousandth of itself; NaN is equal to all.

    Args:
        numbers: Of one worker, as `SumsOfLabels.numbers`.
        others: Of the other.
    """
    most = _TOLERANCE * max(numbers[-1], others[-1]) ** 0.5
    return not any(abs(a - b) > most for a, b in zip(numbers[:-1], others[:-1], strict=True))


def seed_alike(what: str) -> str:
    """The way out of other batches on each worker, without its end.

    Args:
        what: Draws, in words.
    """
    return (
        f"Seed what {what} draws by, alike on all workers (`np.random.default_rng(3)`; `DataParallel(seed=)` seeds "
        "Python's and NumPy's own generators)"
    )


READ_ALIKE = (
    "Give all of the data to every worker, with no `shard` and no slice by the rank. "
    f"{seed_alike('the order')}, or give the examples to `dp.dataset(..., shuffle=True)`."
)
"""The way out of data that are not the same on all workers."""


def labels_to_wire(labels: LabelsSeen) -> list[Any]:
    """What a datagram has of labels."""
    # So that all fit into one; a thousandth is what counts.
    return [*labels.place, *(float(f"{each:.9g}") for each in labels.sums)] if labels.data else []


def read_labels(numbers: Any) -> LabelsSeen:
    """Returns the labels that a datagram tells of.

    Raises:
        ValueError: They are malformed.
    """
    if numbers == []:
        return LabelsSeen()
    if not isinstance(numbers, list) or len(numbers) != 3 + _NUM_SUMS:
        raise ValueError(f"Labels are 3 counts and {_NUM_SUMS} sums.")
    place, sums = numbers[:3], numbers[3:]
    if not all(type(each) is int and 0 < each < _LIMIT for each in place):
        raise ValueError("Data set, pass and batches of labels are counts from 1.")
    if not all(type(each) is float and math.isfinite(each) for each in sums) or sums[-1] < 0:
        raise ValueError("Sums of labels are finite numbers, that of squares the last.")
    data, number, batches = place
    return LabelsSeen(data, number, batches, tuple(sums))


class PassesRead:
    """The passes over data of one worker. Threads of TensorFlow note them.

    Example:
        >>> from tfscale.cluster.passes import EndedPass, PassesRead
        >>> passes = PassesRead()
        >>> data = passes.add_data()
        >>> number = passes.begin(data)
        >>> passes.note(data, number)
        >>> passes.has_more_than(EndedPass(data, number, batches=0))
        True
        >>> passes.end(data, number)
        >>> passes.last_ended
        EndedPass(data=1, number=1, batches=1)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_data = 0
        self._num_begun: collections.Counter[int] = collections.Counter()
        self._batches: dict[tuple[int, int], int] = {}
        self._ended: dict[tuple[int, int], EndedPass] = {}
        self.last_ended = EndedPass()
        """Of all data."""
        self._labels: dict[tuple[int, int, int], LabelsSeen] = {}
        self.last_labels = LabelsSeen()
        """Of all data whose labels are noted."""
        self._augmented: set[int] = set()
        self._without_labels: set[int] = set()

    def add_data(self, *, may_be_augmented: bool = False) -> int:
        """Returns the number of one more data set; every worker calls it.

        Args:
            may_be_augmented: Whether other labels may be of the same examples.
        """
        with self._lock:
            self._num_data += 1
            if may_be_augmented:
                self._augmented.add(self._num_data)
            return self._num_data

    def may_be_augmented(self, data: int) -> bool:
        """Whether other labels of a data set may be of the same examples."""
        return data in self._augmented or data in self._without_labels

    def begin(self, data: int) -> int:
        """Returns the number of one more pass."""
        with self._lock:
            self._num_begun[data] += 1
            number = self._num_begun[data]
            self._batches[data, number] = 0
            _leave(self._batches)
            return number

    def note(self, data: int, number: int) -> None:
        """Notes that a pass has had one more batch."""
        with self._lock:
            if (data, number) in self._batches:
                self._batches[data, number] += 1

    def end(self, data: int, number: int) -> None:
        """Notes that there are no more."""
        with self._lock:
            if (data, number) in self._batches:
                self.last_ended = EndedPass(data, number, self._batches[data, number])
                self._ended[data, number] = self.last_ended
                _leave(self._ended)

    def last_ended_of(self, data: int) -> EndedPass:
        """The last pass over a data set that has ended."""
        with self._lock:
            return next((each for each in reversed(self._ended.values()) if each.data == data), EndedPass())

    def find_ended(self, data: int, number: int) -> EndedPass | None:
        """A pass, if it has ended and is still known."""
        with self._lock:
            return self._ended.get((data, number))

    def note_labels(self, labels: LabelsSeen, *, may_be_augmented: bool = False) -> None:
        """Notes the labels of a pass until some batch.

        Args:
            labels: Of it.
            may_be_augmented: Whether those so far are inputs, as labels tell no example from another.
        """
        with self._lock:
            (self._without_labels.add if may_be_augmented else self._without_labels.discard)(labels.data)
            self._labels[labels.place] = self.last_labels = labels
            _leave(self._labels, _KEPT_LABELS)

    def has_other_labels_than(self, other: LabelsSeen) -> bool:
        """Whether a pass has had other labels here than on another worker, as far as they are known at that place."""
        with self._lock:
            own = self._labels.get(other.place)
        return own is not None and not are_same_labels(own.sums, other.sums)

    def has_more_than(self, other: EndedPass) -> bool:
        """Whether a pass has had more batches here than on another worker, where it has ended."""
        with self._lock:
            return self._batches.get((other.data, other.number), 0) > other.batches


def _leave(passes: dict[Any, Any], count: int = _KEPT) -> None:
    while len(passes) > count:
        del passes[next(iter(passes))]
