"""How many steps does a call of `fit` take, and how many may it take at most?

Callbacks that keep something for each step of a call have to know, and those who choose the calls stand above them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import keras

from tfscale.replicas.owners import Fact, PreparedModel

_CHOSEN = Fact[int](PreparedModel, "steps of the call", str)
# A callback's attribute or property.
MOST = "most_steps_per_call"


def note_steps_of_call(model: keras.Model, steps: int | None) -> None:
    """Notes how many steps the call takes that begins now; None where it is the number that `compile` was given."""
    if steps is None:
        _CHOSEN.forget(model)
    else:
        _CHOSEN.set(model, steps)


def steps_of_call(model: keras.Model) -> int:
    """How many steps the call of `fit` takes that begins now; at the end of the data it may be fewer.

    Example:
        >>> import keras
        >>> from tfscale.training.step.call_size import note_steps_of_call, steps_of_call
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse", steps_per_execution=4)
        >>> note_steps_of_call(model, 7)
        >>> now = steps_of_call(model)
        >>> note_steps_of_call(model, None)
        >>> now, steps_of_call(model)
        (7, 4)
    """
    chosen = _CHOSEN.of(model)
    return int(model.steps_per_execution) if chosen is None else chosen


def most_steps_of(callbacks: Iterable[Any]) -> float:
    """How many steps a call may take, by what its callbacks say now; without a limit it is infinite.

    Example:
        >>> import types
        >>> from tfscale.training.step.call_size import most_steps_of
        >>> most_steps_of([types.SimpleNamespace(most_steps_per_call=8), object()])
        8
        >>> most_steps_of([])
        inf
    """
    return min((getattr(each, MOST, math.inf) for each in callbacks), default=math.inf)
