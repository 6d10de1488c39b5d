"""Where in its script is a worker: what did it do last?"""

from dataclasses import astuple, dataclass
from typing import Any

# Of these a script makes one for each step.
ON_BATCH = ("train_on_batch", "test_on_batch", "predict_on_batch")
CALLS = ("", "fit", "evaluate", "predict", *ON_BATCH)
_GIB = 1024
# So that a place and a verdict fit into one datagram.
_LIMIT = 1 << 40


@dataclass(frozen=True)
class Place:
    """Where a worker is. All are counts, so that a stranger's beat has nothing to print.

    Args:
        call: Calls of `CALLS` so far; all workers make the same ones.
        kind: Which of `CALLS` it is in; 0 outside of any.
        epoch: From 1; 0 outside of an epoch.
        step: Of the epoch, from 1; 0 before the first.
        total: Batches, of training and of validation, that were begun in this call.
        ended_epochs: Epochs of this call that have ended.
        ended_total: `total` when the last of them ended.
        last_total: `total` of the call before.
        model: A digest of the shapes of the model's weights; 0 where it is not known.
        used_mib: Memory of the process.
        free_mib: Memory that its host has left; 0 where that is not known.
        data: Data set of which it has read a pass to its end last, from 1; 0 where none has ended.
        data_pass: Which pass over them, from 1.
        data_batches: How many batches that had.
        all_ended: Calls that all workers have ended, as far as the chief has heard; 0 of any other.
    """

    call: int = 0
    kind: int = 0
    epoch: int = 0
    step: int = 0
    total: int = 0
    ended_epochs: int = 0
    ended_total: int = 0
    last_total: int = 0
    model: int = 0
    used_mib: int = 0
    free_mib: int = 0
    data: int = 0
    data_pass: int = 0
    data_batches: int = 0
    all_ended: int = 0

    @property
    def ended(self) -> int:
        """Calls that it has ended."""
        return self.call - (self.kind != 0)


def to_wire(place: Place) -> list[int]:
    """What a datagram has of a place."""
    return list(astuple(place))


def read_place(numbers: Any) -> Place:
    """Returns the place that a datagram tells of.

    Raises:
        ValueError: It is none.
    """
    count = len(to_wire(Place()))
    if not isinstance(numbers, list) or len(numbers) != count or not all(map(_is_count, numbers)):
        raise ValueError(f"A place is {count} counts.")
    place = Place(*numbers)
    if place.kind >= len(CALLS):
        raise ValueError("A place is in a call of one of the known kinds.")
    return place


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LIMIT


def describe_place(place: Place) -> str:
    """Says where a worker was.

    Example:
        >>> from tfscale.cluster.place import Place, describe_place
        >>> describe_place(Place(call=1, kind=1, epoch=2, step=7))
        'in step 7 of epoch 2 of `fit`'
        >>> describe_place(Place(call=3))
        'after its call 3 of `fit` or the like'
    """
    if not place.call:
        return "before its first call of `fit` or the like"
    if not place.kind:
        return f"after its call {place.call} of `fit` or the like"
    call = f"`{CALLS[place.kind]}`"
    if not place.epoch:
        return f"in {call}" if place.total == 0 else f"in batch {place.total} of {call}"
    if not place.step:
        return f"at the begin of epoch {place.epoch} of {call}"
    return f"in step {place.step} of epoch {place.epoch} of {call}"


def describe_memory(place: Place) -> str:
    """Says what memory a worker had, where that is known; that it had too little, where it looks so.

    Example:
        >>> from tfscale.cluster.place import Place, describe_memory
        >>> describe_memory(Place(used_mib=2048, free_mib=8192))
        'It used 2.0 GiB of memory; its host had 8.0 GiB left.'
    """
    if not place.free_mib:
        return ""
    said = f"It used {place.used_mib / _GIB:.1f} GiB of memory; its host had {place.free_mib / _GIB:.1f} GiB left."
    if was_short_of_memory(place):
        said += " That looks like the end of its memory: `micro_batch` or smaller batches need less."
    return said


def was_short_of_memory(place: Place) -> bool:
    """Whether the host of a worker had nearly no memory left: less than a tenth of what the worker used."""
    return 0 < place.free_mib < place.used_mib / 10
