"""What tensors depend on; graphs of one process, no strategy."""

import pytest
import tensorflow as tf

from tfscale.replicas.graph_walk import depends_on, depends_on_batch, is_made_by
from tfscale.replicas.marks import mark_own

TABLE = tf.constant([3, 1, 2])


def _in_loop(x):
    """The index of the last turn of a loop over a tensor of outside."""
    found = []

    def body(index, total):
        found.append((depends_on_batch(tf.range(3)), depends_on_batch(tf.cast(x[0] + index, tf.int32))))
        return index + 1, total + x[0]

    tf.while_loop(lambda index, _: index < 2, body, (tf.constant(0.0), tf.constant(0.0)))
    return found[0]


@pytest.mark.parametrize(
    ("name", "index", "expected"),
    [
        ("positions", lambda x: tf.range(5), False),
        ("positions of the batch's length", lambda x: tf.range(tf.shape(x)[1]), False),
        ("positions, shifted and cast", lambda x: tf.cast(tf.range(tf.shape(x)[-1]) + 1, tf.int64), False),
        ("a table", lambda x: tf.gather(TABLE, tf.range(2)), False),
        ("tokens", lambda x: tf.cast(x, tf.int32), True),
        ("positions of what is there", lambda x: tf.where(x[0] > 0), True),
        ("tokens in a shape of positions", lambda x: tf.range(3) + tf.cast(x[0, 0], tf.int32), True),
        ("random numbers", lambda x: tf.random.uniform([3], maxval=5, dtype=tf.int32), True),
    ],
)
def test_depends_on_batch(name, index, expected):
    del name
    found = []

    @tf.function
    def trace(x):
        found.append(depends_on_batch(index(x)))

    trace.get_concrete_function(tf.TensorSpec([None, None]))
    assert found == [expected]


def test_the_batch_may_be_a_constant_of_the_graph():
    tokens, found = tf.constant([4, 1]), []

    @tf.function
    def trace():
        own = tf.identity(tokens)
        found.append(depends_on_batch(own + 1))
        mark_own(own)
        found.append(depends_on_batch(own + 1))
        found.append(depends_on_batch(tf.range(tf.size(own))))

    trace.get_concrete_function()
    assert found == [False, True, False]


def test_through_the_graphs_of_loops_and_of_functions():
    found = []

    @tf.function
    def trace(x):
        found.append(_in_loop(x[0]))

    trace.get_concrete_function(tf.TensorSpec([None, None]))
    assert found == [(False, True)]


def _from_the_end(index, other=None):
    return tf.where((index if other is None else other) < 0, index + 3, index)


@pytest.mark.parametrize(
    ("name", "index", "expected"),
    [
        ("different tokens", lambda x: tf.unique(x)[0], True),
        ("in another shape and type", lambda x: tf.cast(tf.reshape(tf.unique(x)[0], [-1, 1]), tf.int64), True),
        ("negative ones from the end", lambda x: _from_the_end(tf.unique(x)[0]), True),
        ("from the end by another", lambda x: _from_the_end(tf.unique(x)[0], tf.unique(x + 1)[0]), False),
        ("where each token is", lambda x: tf.unique(x)[1], False),
        ("made equal", lambda x: tf.unique(x)[0] // 2, False),
        ("tokens", lambda x: x, False),
    ],
)
def test_is_made_by(name, index, expected):
    del name
    found = []

    @tf.function
    def trace(x):
        found.append(is_made_by(index(x), {"Unique": 0}))

    trace.get_concrete_function(tf.TensorSpec([3], tf.int32))
    assert found == [expected]


def test_depends_on():
    found = []

    @tf.function
    def trace(x, y):
        marked = tf.identity(x * 2)
        found.append(depends_on([tf.exp(marked) + y], lambda op: op is marked.op))
        found.append(depends_on([x + y], lambda op: op is marked.op))

    trace.get_concrete_function(tf.TensorSpec([]), tf.TensorSpec([]))
    assert found == [True, False]
