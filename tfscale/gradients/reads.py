"""Where are gradients summed that a step works on before an optimizer gets them?

Clipping, norms, surgery, accumulation, a step up to a sharper place: on one device all of it sees the gradients of the
whole batch. On N replicas a tape gives those of a replica's own rows, unless they are summed on their way back to the
variables: where each one was read. That is a collective for every variable, so it is done for those steps only of which
`step_check.py` finds that they need it; `sum_gradients` does the same in one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfscale.exact.metrics import RESETTING
from tfscale.exact.terms import sums_where_read
from tfscale.framework.graphs import around_conditions, around_loops
from tfscale.gradients.sums import sum_of_global_batch
from tfscale.replicas.share import current_share, step_graph


def read_in_step(variable: Any, take: Callable[[], Any]) -> Any:
    """What a step gets that reads a distributed variable: its value, from which a gradient of all rows comes back.

    Args:
        variable: That is read.
        take: Takes its value on this replica.
    """
    # TensorFlow reads what it has assigned, and nobody looks at it.
    if RESETTING.is_raised and tf.distribute.in_cross_replica_context():
        return variable.distribute_strategy.experimental_local_results(variable)[0].read_value()
    share = current_share()
    if share is None or not sums_where_read() or not (variable.trainable and variable.dtype.is_floating):
        return take()

    @tf.custom_gradient
    def read(value: Any) -> Any:
        return tf.identity(value), lambda slope: sum_of_global_batch(variable, slope, share)

    if tf.executing_eagerly():
        return read(take())
    inside = tf.compat.v1.get_default_graph()
    # A loop of the step's own cannot send: what its turns read is read once, around it. Not around the loop that takes
    # several steps, which would all see the weights of before the first.
    if (graph := around_loops(inside, step_graph())) is not None:
        with graph.as_default():
            return read(take())
    # Nor can the gradient of a condition. What it reads may have been assigned in it: only the slope goes around.
    if (graph := around_conditions(inside, step_graph())) is not None:
        with graph.as_default():
            around = read(take())
        return _with_slope_to(around, tf.stop_gradient(take()))
    return read(take())


@tf.custom_gradient
def _with_slope_to(other: Any, value: Any) -> Any:
    """`value`, whose slope is that of `other`."""
    return tf.identity(value), lambda slope: (tf.convert_to_tensor(slope), None)
