"""How far is a run from the reference?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfscale.parity.outcome import OPTIMIZER_STATE, QUANTITIES, WEIGHTS, NamedArrays, Outcome

# Largest relative difference that rounding explains, by the least exact dtype that a layer computes
# in: about a hundred roundings for float32, and ten for the half precisions, whose sums are float32.
_TOLERANCES = {"bfloat16": 8e-2, "float16": 1e-2, "float32": 1e-5, "float64": 1e-5}

# An array this much smaller than the largest one of the model is measured against the latter. With
# the tolerance of 1e-5, what is then passed over is a tenth of one float32 rounding of that one.
_FLOOR = 1e-3


@dataclass(frozen=True)
class Difference:
    """The largest difference between two runs in one quantity.

    Args:
        size: Relative; infinite when shapes or finiteness differ.
        where: Name of the array with the largest difference.
    """

    size: float
    where: str


def choose_tolerance(compute_dtypes: Sequence[str]) -> float:
    """Returns the relative difference up to which two runs count as equal.

    Args:
        compute_dtypes: The dtypes that the model's layers compute in.

    Example:
        >>> choose_tolerance(["float32"]), choose_tolerance(["float32", "float16"])
        (1e-05, 0.01)
    """
    return max((_TOLERANCES.get(dtype, 1e-5) for dtype in compute_dtypes), default=1e-5)


def compare_outcomes(reference: Outcome, workers: Sequence[Outcome]) -> dict[str, Difference]:
    """Returns the largest difference of each quantity, over all workers of a run.

    Args:
        reference: The outcome of the reference.
        workers: The outcomes of the run's workers.
    """
    return {
        quantity: max(
            (
                largest_difference(
                    worker.arrays[quantity],
                    reference.arrays[quantity],
                    with_floor=quantity in (WEIGHTS, OPTIMIZER_STATE),
                )
                for worker in workers
            ),
            key=lambda difference: difference.size,
        )
        for quantity in QUANTITIES
        if any(outcome.arrays[quantity] for outcome in (reference, *workers))
    }


def largest_difference(ours: Mapping[str, np.ndarray], reference: NamedArrays, *, with_floor: bool) -> Difference:
    """Returns the largest relative difference of corresponding arrays.

    For an array a and its reference b: max|a - b| / max(max|b|, floor), the largest over arrays.
    Integers and booleans, such as counters, must be the same. Two NaNs in one place are the same.
    Where the replicas hold different copies, the one that differs most counts.

    Args:
        ours: Arrays by name; as many as in `reference`, in the same order.
        reference: The arrays to compare with.
        with_floor: Whether floor is a thousandth of the largest value in any float array of
            `reference` of one dimension or more; otherwise it is 0, and arrays of zeros are
            compared by absolute difference.

    Example:
        >>> import numpy as np
        >>> largest_difference(
        ...     {"a": np.array([1.0, 2.0]), "b": np.array([4.0])},
        ...     {"a": np.array([1.0, 2.5]), "b": np.array([4.0])},
        ...     with_floor=False,
        ... )
        Difference(size=0.2, where='a')
    """
    if len(ours) != len(reference):
        return Difference(math.inf, f"{len(ours)} arrays instead of {len(reference)}")
    floor = _FLOOR * _largest_value(reference) if with_floor else 0.0
    differences = [
        Difference(_relative(array, expected, floor), name)
        for array, (name, expected) in zip(ours.values(), reference.items(), strict=True)
    ]
    return max(differences, key=lambda difference: difference.size, default=Difference(0.0, ""))


def _largest_value(arrays: NamedArrays) -> float:
    return max((_magnitude(a) for a in arrays.values() if a.ndim and _is_float(a)), default=0.0)


def _relative(ours: np.ndarray, reference: np.ndarray, floor: float) -> float:
    if ours.ndim == reference.ndim + 1:
        # The replicas' copies differ from each other.
        return max(_relative(copy, reference, floor) for copy in ours)
    if ours.shape != reference.shape:
        return math.inf
    if not (_is_float(ours) and _is_float(reference)):
        return 0.0 if np.array_equal(ours, reference) else math.inf
    ours, reference = ours.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(reference)
    if not np.array_equal(ours[~finite], reference[~finite], equal_nan=True):
        return math.inf
    if not np.all(np.isfinite(ours[finite])):
        return math.inf
    gap = _magnitude(ours[finite] - reference[finite])
    scale = max(_magnitude(reference), floor)
    return gap / scale if scale else gap


def _magnitude(array: np.ndarray) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f"
