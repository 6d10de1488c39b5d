"""What does Keras find on a tensor where the rows of all replicas stand for a replica's own?

Masks, by which losses weight; and behind probabilities the logits, of which its cross entropies compute where there are
some. Else they compute of probabilities that are limited to 1e-7 first, which is alike only as long as no prediction is
sure of itself, and labels are shares of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfscale.framework.losses import attach_keras_logits, attach_keras_mask, keras_logits, keras_mask

# Behind which Keras finds logits, whoever made them. Each row of what they make is of one row.
_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"Sigmoid": tf.nn.sigmoid, "Softmax": tf.nn.softmax}


def with_attached(output: Any, change: Callable[[Any], Any]) -> Any:
    """What a function makes of a tensor, with what it makes of the mask and the logits that Keras finds there.

    Args:
        output: Tensor `[n, ...]`.
        change: Makes other rows of rows, each of one of them: all replicas' of a replica's own.
    """
    changed = _with_logits(output, change)
    mask = keras_mask(output)
    if mask is not None:
        attach_keras_mask(changed, change(mask))
    return changed


def _with_logits(output: Any, change: Callable[[Any], Any]) -> Any:
    activation, given = _activation_of(output)
    logits = keras_logits(output)
    if activation is not None and (logits is None or logits is given):
        # Sent once; what is computed of them is the same.
        changed = change(given)
        rows = activation(changed)
        if logits is not None:
            attach_keras_logits(rows, changed)
        return rows
    rows = change(output)
    if logits is not None:
        attach_keras_logits(rows, change(logits))
    return rows


def _activation_of(output: Any) -> tuple[Callable[[Any], Any] | None, Any]:
    """The activation of which a tensor of a graph is the output, and of what; None for any other."""
    if not tf.is_symbolic_tensor(output) or output.op.type not in _ACTIVATIONS:
        return None, None
    return _ACTIVATIONS[output.op.type], output.op.inputs[0]
