"""How is a variable made on all replicas, while a graph is traced that uses it?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from tfscale.training._graph_private import value_outside
from tfscale.training.made import made_under


@contextlib.contextmanager
def making_variables_outside(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Makes all variables that this thread asks for meanwhile outside of the graph that it traces, with their values.

    In the graph only TensorFlow's own function could give them their values, and not for replicas. Another thread is
    the one public way out of a graph and of a replica's context.

    Args:
        strategy: Under whose scope they are made.
    """

    def make(arguments: dict[str, Any]) -> tf.Variable:
        value = arguments.get("initial_value")
        if tf.is_symbolic_tensor(value):
            arguments = {**arguments, "initial_value": value_outside(value)}
        with strategy.scope():
            return tf.Variable(**arguments)

    with ThreadPoolExecutor(1) as outside:

        def creator(next_creator: Callable[..., Any], **arguments: Any) -> Any:
            del next_creator
            made_under(strategy).note()
            return outside.submit(make, arguments).result()

        with tf.variable_creator_scope(creator):
            yield


@contextlib.contextmanager
def entering_scope(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """The strategy's scope, also where a function is traced outside of it."""
    with strategy.scope():
        if tf.executing_eagerly():
            yield
        else:
            with making_variables_outside(strategy):
                yield
