"""Which model is this? Facts that all runs of one model have in common, and no names that Keras counts up."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from tfscale.gradients.updaters import innermost


def model_facts(model: Any) -> dict[str, Any]:
    """Returns what can be written as JSON: of parameters, of the weights' shapes, of the optimizer and its momentum.

    Args:
        model: Built and compiled with an optimizer.
    """
    optimizer = innermost(model.optimizer)
    shapes = repr([tuple(each.shape) for each in model.weights])
    facts: dict[str, Any] = {
        "parameters": int(model.count_params()),
        "trainable_parameters": sum(math.prod(each.shape) for each in model.trainable_variables),
        "weights": hashlib.sha256(shapes.encode()).hexdigest()[:12],
        "optimizer": type(optimizer).__name__,
    }
    momentum = getattr(optimizer, "momentum", None)
    if isinstance(momentum, int | float):
        facts["momentum"] = float(momentum)
    return facts
