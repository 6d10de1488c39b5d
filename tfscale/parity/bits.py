"""Are the arrays of two runs equal to the bit, and if not, which differs first?"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tfscale.parity.outcome import EVALUATE, OPTIMIZER_STATE, PREDICT, WEIGHTS, NamedArrays, Outcome

DATA = "data"
START = "starting weights"
LOGS = "epoch logs"
BIT_QUANTITIES = (DATA, START, LOGS, WEIGHTS, OPTIMIZER_STATE, EVALUATE, PREDICT)
"""In the order of the table."""

_EPOCH = "epoch "
# So many floats lie between numbers that have little in common.
_MANY_ULPS = 100_000


@dataclass(frozen=True)
class BitDifference:
    """An array whose bytes are not those of its counterpart.

    Args:
        quantity: One of `BIT_QUANTITIES`.
        when: "after epoch 1", or "at the end"; empty where there is only one time.
        name: Of the array.
        text: What differs, for people.
        num_elements: Of the array; 0 where it has no counterpart of its shape and dtype.
        num_differing: Elements whose bits differ.
        ulps: The largest distance in floats that lie between, of finite floats; None where that is no number.
        relative: max|a - b| / max|b|, or max|a - b| of zeros; None where that is no number.
    """

    quantity: str
    when: str
    name: str
    text: str
    num_elements: int = 0
    num_differing: int = 0
    ulps: int | None = None
    relative: float | None = None

    def __str__(self) -> str:
        where = f"{self.quantity} {self.when}".strip()
        return f"{where}, {self.name!r}: {self.text}"


def epoch_group(epoch: int, quantity: str) -> str:
    """The name of what a run has left at the end of an epoch.

    Example:
        >>> epoch_group(0, "weights")
        'epoch 1: weights'
    """
    return f"{_EPOCH}{epoch + 1}: {quantity}"


def find_bit_differences(outcome: Outcome, reference: Outcome) -> list[BitDifference]:
    """Returns what differs from the reference, in the order in which it came to be.

    Data and starting weights come first; then, epoch by epoch, logs and variables by name; then the variables at the
    end, evaluation and predictions.
    """
    found = []
    if outcome.data != reference.data:
        found.append(BitDifference(DATA, "", "all examples", "others, or in another order, or in other batches"))
    for group, ours in _groups(outcome):
        expected = reference.start if group == START else reference.arrays[group]
        found += _differences(group, ours, expected)
    return found


def count_arrays(outcome: Outcome) -> dict[str, int]:
    """Returns how many arrays there are of each quantity."""
    counts = {DATA: 1}
    for group, arrays in _groups(outcome):
        quantity, _ = _told(group)
        counts[quantity] = counts.get(quantity, 0) + len(arrays)
    return {quantity: counts[quantity] for quantity in BIT_QUANTITIES if counts.get(quantity)}


def _groups(outcome: Outcome) -> Iterator[tuple[str, NamedArrays]]:
    yield START, outcome.start
    yield from outcome.arrays.items()


def _told(group: str) -> tuple[str, str]:
    """Quantity and time of a group."""
    epoch, _, quantity = group.partition(": ")
    if quantity:
        return quantity, f"after {epoch}"
    return group, "at the end" if group in (WEIGHTS, OPTIMIZER_STATE) else ""


def _differences(group: str, ours: NamedArrays, expected: NamedArrays) -> list[BitDifference]:
    quantity, when = _told(group)
    if len(ours) != len(expected):
        others = [name for name in (*ours, *expected) if (name in ours) != (name in expected)]
        text = f"{len(ours)} arrays instead of {len(expected)}"
        return [BitDifference(quantity, when, others[0], text)]
    pairs = zip(ours.values(), expected.items(), strict=True)
    return [
        _difference(quantity, when, name, array, other)
        for array, (name, other) in pairs
        if (array.shape, array.dtype) != (other.shape, other.dtype) or array.tobytes() != other.tobytes()
    ]


def _difference(quantity: str, when: str, name: str, array: np.ndarray, other: np.ndarray) -> BitDifference:
    if array.ndim == other.ndim + 1 and array.dtype == other.dtype:
        # The copies of this process's devices are not equal: the first that differs from the reference's.
        copy = next(each for each in array if each.tobytes() != other.tobytes())
        found = _difference(quantity, when, name, copy, other)
        return BitDifference(**{**vars(found), "text": f"{found.text} (and its devices have unequal copies)"})
    if (array.shape, array.dtype) != (other.shape, other.dtype):
        text = f"shape {array.shape}, {array.dtype} instead of shape {other.shape}, {other.dtype}"
        return BitDifference(quantity, when, name, text)
    size = max(array.dtype.itemsize, 1)
    ours, theirs = (np.frombuffer(each.tobytes(), np.uint8).reshape(-1, size) for each in (array, other))
    differs = np.any(ours != theirs, axis=1)
    a, b = array.reshape(-1)[differs], other.reshape(-1)[differs]
    ulps, relative = _ulps(a, b), _relative(a, b, other)
    text = f"{len(a)} of {array.size} element{'' if array.size == 1 else 's'}"
    if ulps == 0:
        text += " in the sign of zero"
    elif relative:
        told = f", {ulps:,} ulp at most" if ulps is not None and ulps < _MANY_ULPS else ""
        text += f", {relative:.1e} relative{told}"
    return BitDifference(quantity, when, name, text, array.size, len(a), ulps, relative)


def _ulps(a: np.ndarray, b: np.ndarray) -> int | None:
    """The largest number of steps from float to float between two."""
    if a.dtype.kind != "f" or not (np.isfinite(a).all() and np.isfinite(b).all()) or _may_have_been_narrower(a, b):
        return None
    size = a.dtype.itemsize
    unsigned = np.dtype(f"u{size}")
    largest = np.uint64(2 ** (8 * size - 1) - 1)
    magnitudes = [each.view(unsigned).astype(np.uint64) & largest for each in (a, b)]
    same = np.signbit(a) == np.signbit(b)
    apart = np.where(same, np.maximum(*magnitudes) - np.minimum(*magnitudes), magnitudes[0] + magnitudes[1])
    return int(apart.max())


def _may_have_been_narrower(*arrays: np.ndarray) -> bool:
    """Whether these may be numbers of a narrower dtype, whose floats lie further apart.

    Keras logs Python's floats, numpy's file format has no bfloat16.
    """
    with np.errstate(over="ignore"):
        if arrays[0].dtype == np.float64:
            return all(np.array_equal(each, each.astype(np.float32)) for each in arrays)
    return arrays[0].dtype == np.float32 and not any(np.any(each.view(np.uint32) & 0xFFFF) for each in arrays)


def _relative(a: np.ndarray, b: np.ndarray, whole: np.ndarray) -> float | None:
    if a.dtype.kind not in "fiub":
        return None
    a, b, whole = (each.astype(np.float64) for each in (a, b, whole))
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    scale = np.abs(whole[np.isfinite(whole)]).max(initial=0.0)
    return float(np.abs(a - b).max() / (scale or 1.0))
