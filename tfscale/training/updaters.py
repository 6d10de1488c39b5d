"""Which optimizers does a model hold, and which of them update its weights?"""

from __future__ import annotations

import keras


def innermost(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """The optimizer that updates the weights, inside any `LossScaleOptimizer`."""
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def held_optimizers(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """The compiled optimizer of a model, and those that a user's own class holds besides."""
    held = [value for value in vars(model).values() if isinstance(value, keras.optimizers.Optimizer)]
    return list({id(optimizer): optimizer for optimizer in held}.values())


def updaters_of(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """The optimizers that update weights: those inside a `MultiOptimizer` (since Keras 3.15), or the one at hand."""
    return list(getattr(optimizer, "optimizers", ())) or [innermost(optimizer)]


def accumulates(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether updates happen only on every k-th step."""
    return bool(innermost(optimizer).gradient_accumulation_steps)
