"""What is a case of the N = 1 contract, and how far are two runs of it apart?

A case is a user's script as a function of an object with `scope`, `prepare` and `num_replicas`. Given
`PlainKeras` it is the script that a user has today, on one device; given a `DataParallel` it is the
same script on N replicas. What it returns are named lists of arrays, which the contract compares.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

GLOBAL_BATCH = 24
TOLERANCE = 1e-5
# A momentum may be the small difference of large gradients, and a clipped one is divided by their norm.
OPTIMIZER_TOLERANCE = 5e-5

Outcome = dict[str, list[np.ndarray]]


class PlainKeras:
    """Stands in for `DataParallel` in the script that knows nothing of tfscale."""

    num_replicas = 1

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def prepare(self, model: keras.Model) -> keras.Model:
        return model


Script = Callable[[Any], Outcome]


@dataclasses.dataclass(frozen=True)
class Case:
    """One script, run with and without tfscale from the same seeds.

    Args:
        run: The script.
        reference: Another script that says what the result has to be, where plain Keras does not.
        global_batch: Of the `DataParallel` that the script gets.
        batch_norm: The same.
        tolerance: Largest relative difference of any array. Other than the default, the case says why.
        tolerances: The same for single quantities.
        options: Other arguments of its `DataParallel`.
        warns: How a warning begins that Keras gives of the script on one device as well; any other one is an error.
    """

    run: Script
    reference: Script | None = None
    global_batch: int = GLOBAL_BATCH
    batch_norm: str = "auto"
    tolerance: float = TOLERANCE
    tolerances: Mapping[str, float] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    warns: str = ""


def fitting(
    build: Callable[[], keras.Model],
    compiled: Callable[[], dict[str, Any]],
    data: Callable[[], dict[str, Any]],
    *,
    epochs: int = 2,
    evaluated: bool = False,
    **case: Any,
) -> Case:
    """The common case: compile, fit, evaluate, predict.

    Args:
        build: Makes the model; called under the scope.
        compiled: Makes the arguments of `compile`; called under the scope.
        data: Makes the arguments of `fit`.
        epochs: Of `fit`.
        evaluated: Whether `evaluate` and `predict` are called as well.
        **case: Of `Case`.
    """

    def run(dp: Any) -> Outcome:
        with dp.scope():
            model = dp.prepare(build())
            model.compile(**compiled())
        return observe_fit(model, data(), epochs=epochs, evaluated=evaluated)

    return Case(run, **case)


class BatchLogs(keras.callbacks.Callback):
    """Keeps the logs of every training batch."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[list[np.ndarray]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch
        self.kept.append([np.array(logs[name]) for name in sorted(logs)])


def observe_fit(model: keras.Model, data: Mapping[str, Any], *, epochs: int = 2, evaluated: bool = False) -> Outcome:
    """Fits a compiled model and returns all that the contract speaks of."""
    batches = BatchLogs()
    history = model.fit(**{"shuffle": False, "epochs": epochs, **data}, verbose=0, callbacks=[batches])
    outcome = {
        **state_of(model),
        "history": arrays_by_name(history.history),
        "batch logs": [array for logs in batches.kept for array in logs],
    }
    if evaluated:
        names = ("x", "y", "sample_weight", "batch_size")
        given = {name: data[name] for name in names if name in data}
        results = model.evaluate(**given, verbose=0, return_dict=True)
        given.pop("sample_weight", None)
        x = given.pop("x")
        given.pop("y", None)
        outcome["evaluate"] = arrays_by_name(results)
        outcome["predict"] = flat_arrays(model.predict(x, verbose=0, **given))
    return outcome


def state_of(model: keras.Model) -> Outcome:
    """Weights and optimizer state of a built model."""
    state = {"weights": flat_arrays(model.get_weights())}
    if getattr(model, "optimizer", None) is not None:
        state["optimizer"] = [np.array(variable.value) for variable in model.optimizer.variables]
    return state


def arrays_by_name(results: Mapping[str, Any]) -> list[np.ndarray]:
    return [np.array(results[name]) for name in sorted(results)]


def flat_arrays(structure: Any) -> list[np.ndarray]:
    return [np.array(leaf) for leaf in keras.tree.flatten(structure)]


# A bias whose entries mirror each other passes through zero; its rounding is that of what flowed
# through it. No array of a model or an optimizer is measured against less than this part of the
# largest one: with the tolerance of 1e-5, ten float32 roundings of that. The errors that the contract
# is about are a thousand times larger.
_FLOOR = 0.1
_WITH_FLOOR = ("weights", "optimizer")


def differences(ours: Outcome, reference: Outcome) -> dict[str, float]:
    """The largest relative difference of each quantity of the reference."""
    found = {}
    for quantity, expected in reference.items():
        arrays = ours.get(quantity, [])
        if len(arrays) != len(expected):
            found[quantity] = float("inf")
            continue
        floor = _FLOOR * _largest(expected) if quantity in _WITH_FLOOR else 0.0
        found[quantity] = max(
            (relative_difference(*pair, floor) for pair in zip(arrays, expected, strict=True)),
            default=0.0,
        )
    return found


def _largest(arrays: Sequence[np.ndarray]) -> float:
    sizes = [np.max(np.abs(array)) for array in arrays if array.ndim and array.size]
    return float(max(sizes, default=0.0))


def relative_difference(ours: np.ndarray, reference: np.ndarray, floor: float = 0.0) -> float:
    """max|a - b| / max(max|b|, floor) for arrays a and b.

    Infinite when shapes, or what is not finite, differ. Less than 1e-6 is nothing but rounding, and
    counts as that.
    """
    if ours.shape != reference.shape:
        return float("inf")
    if ours.dtype.kind in "SUO":
        return 0.0 if np.array_equal(ours, reference) else float("inf")
    ours, reference = ours.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(reference)
    if not np.array_equal(ours[~finite], reference[~finite], equal_nan=True):
        return float("inf")
    if not np.all(np.isfinite(ours[finite])):
        return float("inf")
    if not np.any(finite):
        return 0.0
    gap = np.max(np.abs(ours[finite] - reference[finite]))
    return float(gap / max(np.max(np.abs(reference[finite])), floor, 1e-6))
