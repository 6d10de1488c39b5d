"""How far is a run from the reference?"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tfscale.parity.outcome import OPTIMIZER_STATE, QUANTITIES, WEIGHTS, NamedArrays, Outcome

# Largest relative difference that rounding explains, by the least exact dtype that a layer computes
# in: about a hundred roundings for float32, and ten for the half precisions, whose sums are float32.
_TOLERANCES = {"bfloat16": 8e-2, "float16": 1e-2, "float32": 1e-5, "float64": 1e-5}

# An array this much smaller than the largest one of the model is measured against the latter. With
# the tolerance of 1e-5, what is then passed over is a tenth of one float32 rounding of that one.
_FLOOR = 1e-3

# Two differences that are nothing but rounding are alike within this factor.
_ALIKE = 10.0

Differences = dict[str, dict[str, float]]
"""Relative differences by quantity and by name of the array."""


def choose_tolerance(compute_dtypes: Sequence[str]) -> float:
    """Returns the relative difference up to which two runs count as equal.

    Args:
        compute_dtypes: The dtypes that the model's layers compute in.

    Example:
        >>> choose_tolerance(["float32"]), choose_tolerance(["float32", "float16"])
        (1e-05, 0.01)
    """
    return max((_TOLERANCES.get(dtype, 1e-5) for dtype in compute_dtypes), default=1e-5)


def compare_outcomes(reference: Outcome, workers: Sequence[Outcome]) -> Differences:
    """Returns how far each array of each quantity is from the reference, over all workers of a run.

    Args:
        reference: The outcome of the reference.
        workers: The outcomes of the run's workers.
    """
    return {
        quantity: _largest_of_each(
            array_differences(
                worker.arrays[quantity],
                reference.arrays[quantity],
                with_floor=quantity in (WEIGHTS, OPTIMIZER_STATE),
            )
            for worker in workers
        )
        for quantity in QUANTITIES
        if any(outcome.arrays[quantity] for outcome in (reference, *workers))
    }


def array_differences(ours: NamedArrays, reference: NamedArrays, *, with_floor: bool) -> dict[str, float]:
    """Returns the relative difference of each array from its counterpart.

    For an array a and its reference b: max|a - b| / max(max|b|, floor). Integers and booleans, such
    as counters, must be the same: their difference is 0 or infinite. Two NaNs in one place are the
    same; other values that are not finite, and other shapes, are infinitely far apart. Where the
    replicas hold different copies, the one that differs most counts.

    Args:
        ours: Arrays by name; as many as in `reference`, in the same order.
        reference: The arrays to compare with.
        with_floor: Whether floor is a thousandth of the largest value in any float array of
            `reference` of one dimension or more; otherwise it is 0, and arrays of zeros are
            compared by absolute difference.

    Example:
        >>> import numpy as np
        >>> array_differences(
        ...     {"a": np.array([1.0, 2.0]), "b": np.array([4.0])},
        ...     {"a": np.array([1.0, 2.5]), "b": np.array([4.0])},
        ...     with_floor=False,
        ... )
        {'a': 0.2, 'b': 0.0}
    """
    if len(ours) != len(reference):
        return {f"{len(ours)} arrays instead of {len(reference)}": math.inf}
    floor = _FLOOR * _largest_value(reference) if with_floor else 0.0
    return {
        name: _relative(array, expected, floor)
        for array, (name, expected) in zip(ours.values(), reference.items(), strict=True)
    }


def largest(differences: Mapping[str, float]) -> tuple[float, str]:
    """Returns the size and the name of the largest difference; the first of several."""
    name = max(differences, key=differences.__getitem__)
    return differences[name], name


def arrays_without_influence(run: Differences, control: Differences, tolerance: float) -> dict[str, list[str]]:
    """Names the arrays that differ though nothing that the model computes does, by quantity.

    The gradient of such an array is nothing but rounding: most often a bias in front of
    BatchNormalization. It is told by two signs together: all metrics and predictions are equal, and
    plain Keras on one device, started one rounding away, moves the array about as far.

    Args:
        run: Differences of a run from the reference.
        control: Differences of the control run from the reference.
        tolerance: The relative difference up to which arrays count as equal.

    Example:
        >>> run = {"weights": {"kernel": 1e-7, "bias": 3e-4}, "predict": {"output": 2e-7}}
        >>> control = {"weights": {"kernel": 1e-7, "bias": 2e-4}, "predict": {"output": 1e-7}}
        >>> arrays_without_influence(run, control, 1e-5)
        {'weights': ['bias']}
    """
    state = (WEIGHTS, OPTIMIZER_STATE)
    if any(largest(sizes)[0] > tolerance for name, sizes in run.items() if name not in state):
        return {}
    found = {
        quantity: [
            name
            for name, size in run.get(quantity, {}).items()
            if tolerance < size <= _ALIKE * control.get(quantity, {}).get(name, 0.0)
        ]
        for quantity in state
    }
    return {quantity: names for quantity, names in found.items() if names}


def _largest_of_each(several: Iterable[Mapping[str, float]]) -> dict[str, float]:
    result: dict[str, float] = {}
    for differences in several:
        for name, size in differences.items():
            result[name] = max(size, result.get(name, 0.0))
    return result


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
