"""How is a variable made on all replicas, while a graph is traced that uses it?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, MutableSequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from tfscale.framework.graphs import value_outside
from tfscale.replicas.made import made_under


@contextlib.contextmanager
def making_variables_outside(
    strategy: tf.distribute.Strategy, begins: MutableSequence[tuple[tf.Variable, tf.Tensor]] | None = None
) -> Iterator[None]:
    """Makes all variables that this thread asks for meanwhile outside of the graph that it traces, with their values.

    In the graph only TensorFlow's own function could give them their values, and not for replicas. Another thread is
    the one public way out of a graph and of a replica's context.

    Args:
        strategy: Under whose scope they are made.
        begins: To which every copy of what was made is added, with the value that it was made with.
    """

    def make(arguments: dict[str, Any]) -> tf.Variable:
        value = arguments.get("initial_value")
        if tf.is_symbolic_tensor(value):
            arguments = {**arguments, "initial_value": value_outside(value)}
        with strategy.scope():
            variable = tf.Variable(**arguments)
        if begins is not None:
            copies = strategy.experimental_local_results(variable)
            begins.extend((copy, tf.identity(copy.read_value())) for copy in copies)
        return variable

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
