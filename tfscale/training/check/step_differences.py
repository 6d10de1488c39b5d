"""Where do two runs of one step differ by more than rounding?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfscale.exact.terms import Term
from tfscale.framework.models import flat_layers
from tfscale.replicas.agreement import LONGEST_TEXT, texts_of_workers
from tfscale.training.check.outcome import Outcome

# Of an array's largest value. A float32 sum of a few rows in another order differs by 1e-6; layers that divide by small
# deviations make a hundred of that. What is wrong because of the replicas differs by a percent and more.
_TOLERANCES = {2: 3e-2, 4: 3e-4, 8: 1e-8}
# An array that is nothing but rounding, such as the gradient of a bias before BatchNormalization, is judged against
# this part of the largest one of its kind. With the tolerance it makes three roundings of float16, 25 of float32.
_FLOORS = {2: 5e-2, 4: 1e-2, 8: 1e-2}
# What comes out smaller than this part of what it was is not made of it.
_ASSIGNED = 1e-3
# An adaptive optimizer makes a whole step of a gradient that is nothing but rounding.
_LEAST_GRADIENTS = {2: 5e-3, 4: 1e-3, 8: 1e-3}


class Difference(NamedTuple):
    """Something of a step that is not as on one replica."""

    kind: str
    """`"gradients"`, `"loss"`, `"add_loss"`, `"metric"`, `"log"`, `"prediction"`, `"weight"` or `"variable"`."""
    label: str
    """Who made or gets it."""
    name: str
    """Of the array."""
    ours: float
    """The value that differs most."""
    reference: float
    """What it is on one replica."""
    relative: float
    """The difference, relative to the largest value of the reference."""


def of_all_workers(strategy: tf.distribute.Strategy, differences: Sequence[Difference]) -> list[Difference]:
    """What differs on any worker, the same on all of them; every worker calls it.

    Args:
        strategy: Of the job.
        differences: This worker's. Of many, those that are largest are told.
    """
    if len(strategy.extended.worker_devices) == strategy.num_replicas_in_sync:
        return list(differences)
    told: list[str] = []
    for each in sorted(differences, key=lambda row: -row.relative):
        line = json.dumps([*each[:3], *map(float, each[3:])])
        if sum(map(len, told)) + len(told) + len(line) > LONGEST_TEXT:
            break
        told.append(line)
    everyone = "\n".join(filter(None, texts_of_workers(strategy, "\n".join(told))))
    found: dict[tuple[str, str, str], Difference] = {}
    for row in (Difference(*json.loads(line)) for line in everyone.splitlines()):
        known = found.setdefault((row.kind, row.label, row.name), row)
        if row.relative > known.relative:
            found[row.kind, row.label, row.name] = row
    return list(found.values())


def bytes_per_number(model: keras.Model) -> int:
    """Of the narrowest floating-point numbers that layers compute with, variables hold, or losses and metrics are of.

    A policy of a model says nothing of the last: Keras takes `keras.config.floatx()` for them.
    """
    names = [layer.compute_dtype or "float32" for layer in flat_layers(model)]
    names += [each.dtype for each in model.variables]
    kinds = [tf.as_dtype(name) for name in [*names, keras.config.floatx()]]
    return min(kind.size for kind in kinds if kind.is_floating)


def tolerance_of(bytes_per_number: int) -> float:
    """Largest relative difference that rounding may make in a step that computes with numbers of this size."""
    return _TOLERANCES[bytes_per_number]


def compare_arrays(ours: np.ndarray, reference: np.ndarray, floor: float) -> tuple[float, float, float]:
    """The values of both where they differ most, and by how much, relative to max(largest of reference, floor).

    Infinite where shapes differ, or what is not finite.

    Example:
        >>> import numpy as np
        >>> compare_arrays(np.array([1.0, 2.0]), np.array([1.0, 4.0]), 0.0)
        (2.0, 4.0, 0.5)
    """
    if ours.shape != reference.shape:
        return float("nan"), float("nan"), float("inf")
    if ours.dtype.kind not in "fiub" and not np.issubdtype(ours.dtype, np.floating):
        equal = np.array_equal(ours, reference)
        return float("nan"), float("nan"), 0.0 if equal else float("inf")
    a, b = ours.astype(np.float64).ravel(), reference.astype(np.float64).ravel()
    if not a.size:
        return 0.0, 0.0, 0.0
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not np.all(np.isfinite(a[~same]) & np.isfinite(b[~same])):
        worst = int(np.argmax(~same & ~(np.isfinite(a) & np.isfinite(b))))
        return float(a[worst]), float(b[worst]), float("inf")
    # What is infinite in both has no difference.
    gap = np.abs(np.subtract(a, b, out=np.zeros_like(a), where=~same))
    worst = int(np.argmax(gap))
    finite = np.abs(b[np.isfinite(b)])
    scale = max(float(finite.max(initial=0.0)), floor, 1e-30)
    return float(a[worst]), float(b[worst]), float(gap[worst] / scale)


def term_differences(
    ours: Mapping[Term, Mapping[str, np.ndarray]],
    reference: Mapping[Term, Mapping[str, np.ndarray]],
    bytes_per_number: int,
) -> dict[Term, Difference]:
    """The largest difference of each term that both runs have; one that only one run has differs infinitely."""
    found = {}
    # Most logs are results of metrics, which are met where they count.
    for term in [
        *(term for term in reference if term in ours or term.kind != "log"),
        *(ours.keys() - reference.keys()),
    ]:
        own, expected = ours.get(term), reference.get(term)
        if own is None or expected is None or own.keys() != expected.keys():
            found[term] = Difference(term.kind, term.label, term.label, float("nan"), float("nan"), float("inf"))
            continue
        floor = _FLOORS[bytes_per_number] * _largest(expected.values())
        rows = [
            Difference(term.kind, term.label, name, *compare_arrays(own[name], expected[name], floor)) for name in own
        ]
        if rows:
            found[term] = max(rows, key=lambda row: row.relative)
    return found


def log_differences(ours: Outcome, reference: Outcome, kind: str) -> list[Difference]:
    """One for each log that both runs have; `kind` says what it tells."""
    return [
        Difference(kind, f"{kind} {name!r}", name, *compare_arrays(ours.logs[name], reference.logs[name], 1e-6))
        for name in reference.logs
        if name in ours.logs
    ]


def state_differences(
    ours: Outcome,
    reference: Outcome,
    before: Mapping[str, np.ndarray],
    optimized: Iterable[str],
    leave_out: set[str],
    bytes_per_number: int,
) -> list[Difference]:
    """One for each variable that the step changed.

    Args:
        ours: Of the divided step.
        reference: Of the step on one replica.
        before: The state from which both began.
        optimized: Names of the variables of optimizers, whose scale is that of the largest.
        leave_out: Names of variables that are not compared here.
        bytes_per_number: As for `tolerance_of`.
    """
    gradients = {name: value for record in reference.if_mean.values() for name, value in record.items()}
    largest = _largest(gradients.values())
    slots = set(optimized)
    slot_floor = _FLOORS[bytes_per_number] * _largest(
        reference.state[name] for name in slots if name in reference.state
    )
    rows = []
    for name, expected in reference.state.items():
        if name in leave_out:
            continue
        old = before[name]
        kind = "weight" if name in gradients or name in slots else "variable"
        for own in [each for each in (ours.state[name], ours.apart.get(name)) if each is not None]:
            changed = own, expected
            if name in gradients and gradients[name].shape == expected.shape:
                # Where the gradient is nothing but rounding, so is the direction of an adaptive step.
                is_real = np.abs(gradients[name]) > _LEAST_GRADIENTS[bytes_per_number] * largest
                changed = np.where(is_real, own, old), np.where(is_real, expected, old)
            # What is far from what it was, such as a least number so far, was assigned and not added to.
            is_moved = kind == "weight" or _largest([expected]) >= _ASSIGNED * _largest([old])
            if is_moved and np.issubdtype(expected.dtype, np.floating) and expected.shape == old.shape == own.shape:
                # What changed, but for the last bits of what it is added to.
                floor = max(slot_floor if name in slots else 0.0, 1e-3 * _largest([old]))
                compared = compare_arrays(changed[0] - old, changed[1] - old, floor)
            else:
                compared = compare_arrays(*changed, 0.0)
            rows.append(Difference(kind, f"{kind} {name!r}", name, *compared))
    return rows


def kept_differences(ours: Outcome, reference: Outcome, tolerance: float) -> list[str]:
    """Names of what the step keeps in Python, and would not on one replica."""
    return [
        name
        for name, expected in reference.kept.items()
        if name in ours.kept and compare_arrays(ours.kept[name], expected, 0.0)[2] > tolerance
    ]


def _largest(arrays: Iterable[np.ndarray]) -> float:
    return max((float(np.max(np.abs(array), initial=0.0)) for array in arrays if array.dtype.kind in "fc"), default=0.0)
