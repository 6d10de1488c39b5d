"""Cases of the contract: every optimizer that Keras offers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
from packaging.version import Version

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
BROKEN = {"Muon"} if Version(keras.__version__).release < (3, 14) else set()


def offered_optimizers() -> set[str]:
    """Names of the optimizer classes in the public namespace of the installed Keras that work there."""
    return {
        name
        for name, found in vars(_O).items()
        if inspect.isclass(found)
        and issubclass(found, keras.optimizers.Optimizer)
        and found is not keras.optimizers.Optimizer
    } - BROKEN


class Lookahead(_O.Optimizer):
    """Moves every third step towards slow weights, which it fills as it is built."""

    def __init__(self, inner: keras.optimizers.Optimizer) -> None:
        super().__init__(learning_rate=0.01)
        self.inner = inner

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.inner.build(variables)
        self.slow = [self.add_variable_from_reference(each, name="slow") for each in variables]
        for slow, variable in zip(self.slow, variables, strict=True):
            slow.assign(variable)

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        if not self.built:
            self.build(trainable_variables)
        self.inner.apply(grads, trainable_variables)
        self._iterations.assign_add(1)
        is_due = keras.ops.cast(keras.ops.equal(self._iterations % 3, 0), "float32")
        for slow, variable in zip(self.slow, self._trainable_variables, strict=True):
            new = slow + is_due * 0.5 * (variable - slow)
            slow.assign(new)
            variable.assign(is_due * new + (1 - is_due) * variable)


def _fit(make: Callable[[], keras.optimizers.Optimizer], *, built_before: bool = False, **compiled: Any) -> Case:
    def run(dp: Any) -> Outcome:
        with dp.scope():
            model = dp.prepare(mlp())
            model.compile(**classifying(make)(), **compiled)
            if built_before:
                model.optimizer.build(model.trainable_variables)
        return observe_fit(model, labelled(58)(), epochs=4)

    return Case(run)


CASES: dict[str, Case] = {
    f"optimizer {name}": _fit(OPTIMIZERS[name]) for name in sorted(offered_optimizers() & OPTIMIZERS.keys())
}
# Plain Keras builds an optimizer while it traces the first step, and loses what it assigns; built before, it is kept.
_FILLING = {"Lookahead": lambda: Lookahead(_O.Adam(0.01))} | {
    name: OPTIMIZERS[name] for name in ("ScheduleFreeAdamW",) if name in offered_optimizers()
}
for _name, _make in _FILLING.items():
    CASES |= {
        f"optimizer {_name}": _fit(_make),
        f"optimizer {_name}, built before": _fit(_make, built_before=True),
        f"optimizer {_name}, run_eagerly": _fit(_make, run_eagerly=True),
    }
