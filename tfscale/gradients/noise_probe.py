"""What are the gradients of two halves of the rows of one replica, beside a step that takes them at once?

One forward and backward pass more, which changes nothing: neither variables nor the streams of random numbers of the
step that is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.exact.loss_weights import forget_parts, noted_parts
from tfscale.exact.plain_step import meet_loss
from tfscale.exact.terms import as_mean
from tfscale.framework.models import call_model, compute_loss_of
from tfscale.gradients.micro_steps import MicroSteps, in_own_share, sum_over_micro_steps
from tfscale.gradients.parts import Part

_HALVES = 2

Shard = Callable[[Sequence[Any], Any], tf.Tensor]
"""Takes the gradients of a half, of a loss that counts by its weight, and the weight; returns what is added up."""


def probe(model: keras.Model, part: Part, shard: Shard) -> tuple[tf.Tensor, list[Any]]:
    """Returns the sums of what `shard` has returned, and of the gradients, over both halves.

    Args:
        model: Prepared, with Keras's own step.
        part: All rows of the one replica.
        shard: Called for each half.
    """
    variables = model.trainable_weights

    def forward_and_backward(half: Part) -> list[Any]:
        values = [tf.convert_to_tensor(variable.value) for variable in variables]
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(half.batch.data)
        with tf.GradientTape() as tape:
            tape.watch(values)
            # Weight regularizers look for their variables here.
            pairs = list(zip(variables, values, strict=True))
            with keras.StatelessScope(state_mapping=pairs, collect_losses=True):
                loss = compute_loss_of(model, x, y, call_model(model, x, training=True), sample_weight, training=True)
            loss = as_mean(loss, half.share) if meet_loss(model, loss) else loss
            loss = loss * tf.cast(half.share.weight, loss.dtype)
        gradients = tape.gradient(loss, values)
        parts = noted_parts(half.share)
        forget_parts()
        weight = parts[0] if len(parts) == 1 else half.share.weight
        return [shard(gradients, weight), *gradients]

    division = MicroSteps(1, fixed=_HALVES)
    sums = sum_over_micro_steps(
        model, lambda half: in_own_share(half, forward_and_backward), part.batch, part.share, division, []
    )
    return sums[0], sums[1:]
