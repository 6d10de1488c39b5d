"""Which sums over the replicas would be infinite on one replica, as float16 ends at 65504?

A gradient that comes out of float16 is a sum over all rows, and may be too large for it where no replica's part is. A
`LossScaleOptimizer` skips the step for it, and halves its factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfscale.replicas.graph_walk import innermost_tensor

# From here on a number is rounded to infinity.
_OVERFLOWS = (2.0 - 2.0**-11) * 2.0**15
# By these a gradient passes on its way from the pass to its sum: each has it as its first input, once.
_ON_THE_WAY = frozenset(("DivNoNan", "Identity", "MulNoNan"))


def overflowing_as_one(gradients: Sequence[Any], sums: Sequence[Any]) -> list[Any]:
    """Sums over the replicas that are infinite where float16 would be, if it was float16 that gave the parts.

    Args:
        gradients: Those of this replica, with its weight: tensors, `tf.IndexedSlices` or None.
        sums: Of them, in their order.
    """
    return [
        _overflowing(total) if isinstance(total, tf.Tensor) and _left_float16(gradient) else total
        for gradient, total in zip(gradients, sums, strict=True)
    ]


def _left_float16(gradient: Any) -> bool:
    while tf.is_symbolic_tensor(gradient):
        gradient = innermost_tensor(gradient)
        if gradient.op.type == "Cast":
            return bool(gradient.op.inputs[0].dtype == tf.float16)
        if gradient.op.type not in _ON_THE_WAY:
            return False
        gradient = gradient.op.inputs[0]
    return False


def _overflowing(total: tf.Tensor) -> tf.Tensor:
    # A number that is none is neither.
    return tf.where(tf.abs(total) >= _OVERFLOWS, tf.sign(total) * float("inf"), total)
