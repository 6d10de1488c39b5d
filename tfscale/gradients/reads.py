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

from tfscale.exact.terms import sums_where_read
from tfscale.framework.graphs import around_loops
from tfscale.gradients.optimizers import sum_of_global_batch
from tfscale.replicas.share import current_share


def read_in_step(variable: Any, take: Callable[[], Any]) -> Any:
    """What a step gets that reads a distributed variable: its value, from which a gradient of all rows comes back.

    Args:
        variable: That is read.
        take: Takes its value on this replica.
    """
    share = current_share()
    if share is None or not sums_where_read() or not (variable.trainable and variable.dtype.is_floating):
        return take()

    @tf.custom_gradient
    def read(value: Any) -> Any:
        return tf.identity(value), lambda slope: sum_of_global_batch(variable, slope, share)

    # A loop of TensorFlow cannot send: what its turns read is read once, around it.
    graph = None if tf.executing_eagerly() else around_loops(tf.compat.v1.get_default_graph())
    if graph is None:
        return read(take())
    with graph.as_default():
        return read(take())
