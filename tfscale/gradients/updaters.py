"""Which optimizers does a model hold, and which of them update its weights?"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import keras

from tfscale.framework.optimizers import trained_variables
from tfscale.replicas.owners import Fact, PreparedModel

# The optimizers that were met in a model's steps, whatever holds them.
MET = Fact[list[weakref.ref[keras.optimizers.Optimizer]]](
    PreparedModel, "optimizers", lambda met: [one.name for one in (each() for each in met) if one is not None]
)


def innermost(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """The optimizer that updates the weights, inside any `LossScaleOptimizer`."""
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def held_optimizers(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """The compiled optimizer of a model, those that its class holds besides, and those that its steps have used."""
    held = [value for value in vars(model).values() if isinstance(value, keras.optimizers.Optimizer)]
    met = [optimizer for optimizer in (each() for each in MET.of(model, [])) if optimizer is not None]
    return list({id(optimizer): optimizer for optimizer in (*held, *met)}.values())


def remember_optimizers(model: keras.Model, optimizers: Iterable[keras.optimizers.Optimizer]) -> None:
    """Counts `optimizers` among those of `model`, in their order."""
    known = MET.ensure(model, [])
    for optimizer in optimizers:
        if not any(each() is optimizer for each in known):
            known.append(weakref.ref(optimizer))


def updating(model: keras.Model, optimizers: Iterable[keras.optimizers.Optimizer]) -> list[keras.optimizers.Optimizer]:
    """Those of `optimizers` that are built for a variable of `model`."""
    own = set(map(id, model.trainable_variables))
    built = ((each, trained_variables(innermost(each)) or ()) for each in optimizers)
    return [each for each, trained in built if not own.isdisjoint(map(id, trained))]


def updaters_of(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """The optimizers that update weights: those inside a `MultiOptimizer` (since Keras 3.15), or the one at hand."""
    return list(getattr(optimizer, "optimizers", ())) or [innermost(optimizer)]


def accumulates(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether updates happen only on every k-th step."""
    return bool(innermost(optimizer).gradient_accumulation_steps)
