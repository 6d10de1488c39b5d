"""Which layers draw random numbers, and how are they kept still for a comparison?

Each replica draws a stream of its own, by design, so a model with dropout cannot equal itself on one
replica. Keras's own random layers are switched off in every run, and the report says so; what a
user's own layer does with its random numbers cannot be known, and is left alone.
"""

from collections.abc import Callable
from typing import Any

import keras

from tfscale.framework.layers import generators_of_layers
from tfscale.framework.models import flat_layers

# The attributes by which Keras's layers say how random they are; zero is not at all.
_STRENGTHS = ("rate", "stddev", "dropout", "recurrent_dropout")


def switch_off_random_layers(model: keras.Model) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Makes the random layers of `model` compute what they compute in inference.

    Args:
        model: A built model whose train function has not been traced yet.

    Returns:
        The layers that were switched off and those that could not be, as "name (Class)".
    """
    off, still_on = [], []
    for layer in flat_layers(model):
        if not _is_random(layer):
            continue
        label = f"{layer.name} ({type(layer).__name__})"
        if type(layer).__module__.partition(".")[0] == "keras":
            _switch_off(layer)
            off.append(label)
        else:
            still_on.append(label)
    return tuple(off), tuple(still_on)


def _is_random(layer: keras.layers.Layer) -> bool:
    strengths = _strengths(layer)
    return _draws(layer) and (not strengths or any(strengths.values()))


def _draws(layer: keras.layers.Layer) -> bool:
    """Whether `layer` itself holds a seed generator, and not only a layer inside it."""
    inside = {
        id(generator) for inner in flat_layers(layer) if inner is not layer for generator in generators_of_layers(inner)
    }
    return any(id(generator) not in inside for generator in generators_of_layers(layer))


def _strengths(layer: keras.layers.Layer) -> dict[str, float]:
    return {name: value for name, value in vars(layer).items() if name in _STRENGTHS and isinstance(value, int | float)}


def _switch_off(layer: keras.layers.Layer) -> None:
    strengths = _strengths(layer)
    for name in strengths:
        setattr(layer, name, 0.0)
    if not strengths:
        layer.call = _in_inference(layer.call)


def _in_inference(call: Callable[..., Any]) -> Callable[..., Any]:
    def call_in_inference(*args: Any, training: Any = None, **kwargs: Any) -> Any:
        del training
        return call(*args, training=False, **kwargs)

    return call_in_inference
