"""What is a replica's own while it is the turn of others?

Replicas are traced, and run eagerly, one at a time; they change where they meet, in `merge_call`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfscale.framework.autograph import in_place_of
from tfscale.framework.graphs import keep_in_order


@contextlib.contextmanager
def around_turns(leave: Callable[[], Any], come_back: Callable[[Any], None]) -> Iterator[None]:
    """Does something before and after the other replicas have their turn, on the replica in whose context it is called.

    Args:
        leave: Called before; what it returns is kept.
        come_back: Called after, with that.
    """
    context = tf.distribute.get_replica_context()
    if context is None:
        yield
        return
    own, outer = vars(context).get("merge_call"), context.merge_call

    @in_place_of(outer)
    def merge_call(*args: Any, **kwargs: Any) -> Any:
        kept = leave()
        result = outer(*args, **kwargs)
        come_back(kept)
        return result

    context.merge_call = merge_call
    try:
        yield
    finally:
        del context.merge_call
        if own is not None:
            context.merge_call = own


def num_operations() -> int:
    """How many operations the graph that is being traced has."""
    return len(tf.compat.v1.get_default_graph().get_operations())


def in_order_of_its_own(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step whose side effects wait for those of the same replica only, where replicas are traced into one graph.

    TensorFlow runs what has side effects and no state that it knows of (`tf.print`, assertions, `tf.numpy_function`) in
    the order in which it was traced: all of one replica's before any of the next one's. A sum waits for all replicas,
    so where one of the later ones needs a sum, and a sum one of the earlier ones, no replica would ever go on.
    """
    if isinstance(step, tf.types.experimental.PolymorphicFunction):
        # TensorFlow traces the replicas of an eager loop together if it sees one.
        return step

    @tf.autograph.experimental.do_not_convert
    def traced(*args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly():
            return step(*args, **kwargs)
        graph, first, pieces = tf.compat.v1.get_default_graph(), num_operations(), list[range]()

        def leave() -> None:
            pieces.append(range(first, num_operations()))

        def come_back(_: None) -> None:
            nonlocal first
            first = num_operations()

        with around_turns(leave, come_back):
            results = step(*args, **kwargs)
        leave()
        keep_in_order(graph, pieces)
        return results

    return traced
