"""What a compression leaves out of one step goes into the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfscale.errors import CommunicationError
from tfscale.gradients.compression.casts import named_cast
from tfscale.gradients.compression.protocol import Compression, Reduction, State, SumOverReplicas


class ErrorFeedback(Compression):
    """Adds what was left out of this replica's gradients to those of the next step.

    With e_i the memory of replica i, at first 0, and own(x) what the compression takes over of x:
    `sum_i(own(g_i + e_i))` is applied, and `e_i = g_i + e_i - own(g_i + e_i)` remembered. Nothing is lost, only late.

    Args:
        inner: Any compression without feedback of its own, or `"bf16"` or `"fp16"`.

    Raises:
        CommunicationError: When `inner` is none of these.

    Example:
        >>> import tensorflow as tf, tfscale
        >>> alone = list   # with one replica, a sum is what was given
        >>> rounding = tfscale.ErrorFeedback("bf16")
        >>> gradient = tf.constant([1.001])   # 1.0 in bfloat16
        >>> states = [rounding.initial_state(tf.TensorSpec([1]), 0)]
        >>> for step in range(4):
        ...     sums, _, states = rounding.reduce([gradient], states, alone)
        ...     print(float(sums[0][0]))
        1.0
        1.0
        1.0
        1.0078125

    Reference:
        Karimireddy et al. 2019, "Error Feedback Fixes SignSGD and other Gradient Compression Schemes",
        arXiv:1901.09847.
    """

    def __init__(self, inner: Any):
        self.inner = _compression(inner)
        self.exactness = self.inner.exactness

    @property
    def name(self) -> str:
        """That of the inner one, with what is added to it."""
        return f"{self.inner.name} with error feedback"

    def initial_state(self, gradient: tf.TensorSpec, index: int) -> State:
        """Returns an error of 0, and the inner state."""
        return (tf.zeros(gradient.shape, gradient.dtype), *self.inner.initial_state(gradient, index))

    def reduce(
        self, gradients: Sequence[tf.Tensor], states: Sequence[State], sum_over_replicas: SumOverReplicas
    ) -> Reduction:
        """As `Compression.reduce`."""
        wanted = [gradient + state[0] for gradient, state in zip(gradients, states, strict=True)]
        reduction = self.inner.reduce(wanted, [state[1:] for state in states], sum_over_replicas)
        errors = [all_of_it - own for all_of_it, own in zip(wanted, reduction.own, strict=True)]
        states = [(error, *inner) for error, inner in zip(errors, reduction.states, strict=True)]
        return Reduction(reduction.sums, reduction.own, states)


def _compression(inner: Any) -> Compression:
    found = named_cast(inner) if isinstance(inner, str) else inner
    if not isinstance(found, Compression) or isinstance(found, ErrorFeedback):
        raise CommunicationError(
            f'`ErrorFeedback` takes "bf16", "fp16", or a Compression without feedback of its own.\nReceived: {inner!r}.'
        )
    return found
