"""What are the gradients of the global batch, where a step asks before an optimizer has them?"""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf

from tfscale.exact.divided_calls import divides_calls, sum_over_parts
from tfscale.exact.overflow import overflowing_as_one
from tfscale.exact.terms import meet_term, note_sums, sums_where_read
from tfscale.framework.autograph import left_alone
from tfscale.gradients.scaled_losses import unweighted
from tfscale.replicas.all_reduce import all_reduce_sum
from tfscale.replicas.replica_count import is_in_loop
from tfscale.replicas.share import Share, current_share, num_replicas


@left_alone
def sum_gradients(gradients: Any) -> Any:
    """The gradients of the whole global batch, inside of a step of one's own; equal on all replicas.

    For code between tape and optimizer that is not linear: clipping by a global norm, norms that are logged, gradient
    surgery, centralisation, sharpness-aware steps. With g_i the gradient of the mean over the n_i examples of replica
    i it returns `sum_i(n_i / n * g_i)`, which is what the tape gives on one device. An optimizer that gets this, or
    what was made of it, adds nothing up again. A checked step that needs it and does not say so gets the same, with a
    collective for each variable.

    Args:
        gradients: Nested structure of tensors, `tf.IndexedSlices` or None.

    Returns:
        The same structure; `gradients` itself on one replica and outside of a step.

    Example:
        >>> import keras, numpy as np, tensorflow as tf, tfscale
        >>> tfscale.simulate_replicas(2)
        >>> dp = tfscale.DataParallel(global_batch=3)
        >>> class Clipped(keras.Sequential):
        ...     def train_step(self, rows):
        ...         with tf.GradientTape() as tape:
        ...             loss = tf.reduce_mean(self(rows))
        ...         gradients = tfscale.sum_gradients(tape.gradient(loss, self.trainable_variables))
        ...         gradients, norm = tf.clip_by_global_norm(gradients, 1.0)
        ...         self.optimizer.apply(gradients, self.trainable_variables)
        ...         return {"norm": norm}
        >>> with dp.scope():
        ...     model = dp.prepare(Clipped([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)]))
        ...     model.compile("sgd")
        >>> history = model.fit(np.array([[1.0], [2.0], [6.0]]), batch_size=3, verbose=0).history
        >>> round(float(history["norm"][0]), 3)  # as of the mean of [1, 2, 6] on one device
        3.0
    """
    share = current_share()
    if sums_where_read():
        return gradients
    flat: list[Any] = [value_of(each) for each in tf.nest.flatten(gradients)]
    if share is not None and share.weights_gradients:
        flat = unweighted(flat, share)
    is_sum = meet_term("gradients", sum_gradients, "tfscale.sum_gradients", flat)
    if num_replicas() == 1 or (share is None and not is_in_loop()):
        return gradients
    if share is not None:
        weight = share.weight if share.weights_gradients and not is_sum else share.is_counted(tf.float64)
        flat = [times(gradient, weight) for gradient in flat]
    sums = overflowing_as_one(flat, all_reduce_sum(flat))
    note_sums(sums)
    return tf.nest.pack_sequence_as(gradients, sums)


def sum_of_global_batch(variable: Any, gradient: Any, share: Share) -> Any:
    """The gradient of the whole global batch, given what came back to one read of a variable.

    Args:
        variable: That was read.
        gradient: Tensor or `tf.IndexedSlices`.
        share: In which it was read.
    """
    label = f"variable {variable.name!r}"
    if share.num_replicas == 1 and not divides_calls():
        meet_term("read", variable, label, [gradient])
        return gradient
    if divides_calls():
        add_up = functools.partial(sum_over_parts, share=share, times=times)
    else:
        (gradient,) = unweighted([gradient], share) if share.weights_gradients else [gradient]
        is_sum = meet_term("read", variable, label, [gradient])
        add_up = functools.partial(_sum_times, weight=share.is_counted(tf.float64) if is_sum else share.weight)

    def total(own: Any) -> Any:
        return overflowing_as_one([own], [add_up(own)])[0]

    if isinstance(gradient, tf.IndexedSlices):
        return total(gradient)
    # Of a gradient's gradient, each replica's part is weighted and summed when it comes to the variable in its turn.
    return tf.custom_gradient(lambda own: (total(own), lambda slope: slope))(gradient)


def _sum_times(gradient: Any, weight: tf.Tensor) -> Any:
    return all_reduce_sum([times(gradient, weight)])[0]


def times(gradient: Any, weight: tf.Tensor) -> Any:
    """A tensor or `tf.IndexedSlices` times a number, 0 where that is 0; None stays None."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(times(gradient.values, weight), gradient.indices, gradient.dense_shape)
    return tf.math.multiply_no_nan(gradient, tf.cast(weight, gradient.dtype))


def value_of(gradient: Any) -> Any:
    """What a variable holds on this replica, where gradients were accumulated in one and it is given as it stands."""
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.Variable | keras.Variable) else gradient
