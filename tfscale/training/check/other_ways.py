"""In which other ways may a step be that of one replica, where dividing all of it is not?"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from tfscale.gradients.adascale import AdaScaleSGD
from tfscale.gradients.updaters import held_optimizers, innermost
from tfscale.training.check.vouching import computes_row_by_row


class OtherWay(NamedTuple):
    """In which a step may be that of one replica after all."""

    divides: Callable[[Any], bool] | None
    """Where it gets all rows: of which layers the calls are divided. None where gradients are summed as they arise."""
    level: int
    """Of the line in the log that says so."""
    text: str


_WHERE_READ = OtherWay(
    None,
    logging.INFO,
    "works on gradients before an optimizer gets them: they are summed over the replicas one by one, as the tape makes "
    "them. tfscale.sum_gradients(...) around what the tape gives does it in one",
)
_BY_CALLS = OtherWay(
    lambda layer: True,
    logging.WARNING,
    "mixes the rows of a batch: every replica gets all of them, and only the calls of the model's layers are divided. "
    "tfscale.gather_rows(...) around what is mixed divides the rest as well",
)
_BY_KNOWN_LAYERS = OtherWay(
    computes_row_by_row,
    logging.WARNING,
    "mixes the rows of a batch in a layer: every replica gets all of them, and only Keras's own layers are divided, "
    "whose outputs are sent one by one. tfscale.gather_rows(...) around what is mixed divides the rest as well",
)


def other_ways(model: keras.Model, *, is_own: bool, is_eager: bool) -> list[OtherWay]:
    """Those that may help, the cheapest first.

    Args:
        model: Whose step it is.
        is_own: Whether its class defines the step.
        is_eager: Whether it is run eagerly.
    """
    if any(isinstance(innermost(optimizer), AdaScaleSGD) for optimizer in held_optimizers(model)):
        # It measures the gradients of single replicas, which nobody has then.
        return []
    # Keras's own step gives gradients to the optimizer alone. What is drawn between calls shows in graphs only.
    ways = [_WHERE_READ] if is_own else []
    return ways if is_eager else [*ways, _BY_CALLS, _BY_KNOWN_LAYERS]
