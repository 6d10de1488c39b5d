"""Cases of the contract: every optimizer that Keras offers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras

from tests.training.contract import Case, Outcome, observe_fit
from tests.training.models import classifying, labelled, mlp

_O = keras.optimizers

OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "Adadelta": lambda: _O.Adadelta(1.0),
    "Adafactor": lambda: _O.Adafactor(0.05),
    "Adagrad": lambda: _O.Adagrad(0.1),
    "Adam": lambda: _O.Adam(0.01, amsgrad=True),
    "AdamW": lambda: _O.AdamW(0.01, weight_decay=0.1),
    "Adamax": lambda: _O.Adamax(0.01),
    "Ftrl": lambda: _O.Ftrl(0.1, l2_regularization_strength=0.01),
    "Lamb": lambda: _O.Lamb(0.01),
    "Lion": lambda: _O.Lion(0.001),
    "LossScaleOptimizer": lambda: _O.LossScaleOptimizer(
        _O.SGD(0.1, momentum=0.9), initial_scale=2.0**10, dynamic_growth_steps=5
    ),
    "MultiOptimizer": lambda: _O.MultiOptimizer(_O.OptimizerMap(_O.SGD(0.1), {".*/bias": _O.Adam(0.01)})),
    "Muon": lambda: _O.Muon(0.01),
    "Nadam": lambda: _O.Nadam(0.01),
    "RMSprop": lambda: _O.RMSprop(0.01, momentum=0.9, centered=True),
    "SGD": lambda: _O.SGD(0.1, momentum=0.9, nesterov=True),
    "ScheduleFreeAdamW": lambda: _O.ScheduleFreeAdamW(0.01),
}


# Since Keras 3.15 and 3.15; and before 3.14, `fit` fails with this one on plain TensorFlow ("no attribute 'path'").
NEW = {"MultiOptimizer", "ScheduleFreeAdamW"}
BROKEN = {"Muon"} if tuple(map(int, keras.__version__.split(".")[:2])) < (3, 14) else set()


def offered_optimizers() -> set[str]:
    """Names of the optimizer classes in the public namespace of the installed Keras that work there."""
    return {
        name
        for name, found in vars(_O).items()
        if inspect.isclass(found)
        and issubclass(found, keras.optimizers.Optimizer)
        and found is not keras.optimizers.Optimizer
    } - BROKEN


def _fit(name: str) -> Case:
    def run(dp: Any) -> Outcome:
        with dp.scope():
            model = dp.prepare(mlp())
            model.compile(**classifying(OPTIMIZERS[name])())
            if name == "ScheduleFreeAdamW":
                # Plain Keras builds the optimizer while it traces the first step, and loses the
                # values that this one starts from; built before, it keeps them.
                model.optimizer.build(model.trainable_variables)
        return observe_fit(model, labelled(58)(), epochs=4)

    return Case(run)


CASES: dict[str, Case] = {f"optimizer {name}": _fit(name) for name in sorted(offered_optimizers() & OPTIMIZERS.keys())}
