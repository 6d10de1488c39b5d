"""When does a loss that a step of one's own scales get the weight of its replica's rows?

A `LossScaleOptimizer` multiplies the loss by a factor that is as large as float16 allows, and skips the step in which
it was too large. In a step of one's own the loss is a mean over a replica's own rows, and its slopes are larger than
those of the mean over all rows, by as much as there are fewer rows. So they get the replica's weight where the factor
is, before anything is in float16, and are freed of it where the gradients have left the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfscale.exact.terms import gradients_are_sums
from tfscale.framework.autograph import in_place_of
from tfscale.replicas.graph_walk import depends_on
from tfscale.replicas.marks import WEIGHTED_SLOPE, mark_weighted_slope, marked
from tfscale.replicas.share import Share, current_share, step_graph


def weigh_where_scaled(optimizer: Any) -> None:
    """Makes `optimizer.scale_loss` give a loss of a replica's own rows its weight, on the way back. Idempotent.

    Args:
        optimizer: Any Keras optimizer. One that scales no loss stays as it is.
    """
    scale_alone = type(optimizer).scale_loss.__get__(optimizer)

    @in_place_of(scale_alone)
    def scale_loss(loss: Any) -> Any:
        scaled, share = scale_alone(loss), current_share()
        if share is None or scaled is loss or not _is_weighted_later(scaled, share):
            return scaled
        return _weighted_back(scaled, share)

    optimizer.scale_loss = scale_loss


def _is_weighted_later(loss: Any, share: Share) -> bool:
    """Whether it is the optimizer that would weigh the gradients of a loss, and can see that it was done."""
    if not share.weights_gradients or share.num_replicas == 1 or gradients_are_sums():
        return False
    # Nobody sees what was done in a function of the step's own, or without a graph.
    return tf.is_symbolic_tensor(loss) and loss.dtype.is_floating and loss.graph is step_graph()


def _weighted_back(loss: tf.Tensor, share: Share) -> tf.Tensor:
    """`loss`, whose slope is multiplied by the weight of the replica's rows."""

    @tf.custom_gradient
    def weighted(value: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def back(slope: tf.Tensor) -> tf.Tensor:
            small = tf.math.multiply_no_nan(slope, tf.cast(share.weight, slope.dtype))
            mark_weighted_slope(small)
            return small

        return tf.identity(value), back

    return weighted(loss)


def unweighted(gradients: Sequence[Any], share: Share) -> list[Any]:
    """Gradients of the mean over a replica's own rows, of which some may have its weight already.

    Args:
        gradients: Tensors, `tf.IndexedSlices` or None.
        share: In which they were computed.
    """
    graph = None if tf.executing_eagerly() else step_graph()
    if graph is None or not graph.get_collection(WEIGHTED_SLOPE):
        return list(gradients)
    known: dict[int, set[int]] = {}

    def is_mark(op: Any) -> bool:
        if id(op.graph) not in known:
            known[id(op.graph)] = marked(op.graph, WEIGHTED_SLOPE)
        return any(id(output) in known[id(op.graph)] for output in op.outputs)

    return [
        _unweighted(gradient, share) if gradient is not None and depends_on([gradient], is_mark) else gradient
        for gradient in gradients
    ]


def _unweighted(gradient: Any, share: Share) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(_unweighted(gradient.values, share), gradient.indices, gradient.dense_shape)
    return tf.math.divide_no_nan(gradient, tf.cast(share.weight, gradient.dtype))
