"""A step that goes by the largest number of a batch is compared on rows that lie far apart, too."""

import keras
import pytest
import tensorflow as tf

from tfscale.training.check.extremes import takes_extremes

NUM_ROWS = 4


def _in_a_loop(x):
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y - tf.reduce_max(y)), (0, x))[1]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda x: tf.maximum(x, tf.reduce_max(x) - 80.0), True),
        (lambda x: x / keras.ops.amin(x, axis=0), True),
        (lambda x: x - tf.reduce_max(x, axis=-2), True),
        (lambda x: x - tf.reduce_max(tf.reshape(x, [-1])), True),
        (lambda x: x - tf.reduce_max(x, axis=1, keepdims=True), False),
        (lambda x: keras.ops.softmax(x), False),
        (lambda x: x - tf.cast(tf.reduce_max(tf.cast(x, tf.int32)), tf.float32), False),
        (lambda x: x - tf.reduce_max(tf.ones([3, 3])), False),
        (lambda x: x - tf.reduce_mean(x), False),
        (_in_a_loop, True),
    ],
)
def test_which_graphs_go_by_an_extreme_of_rows(step, expected):
    function = tf.function(step).get_concrete_function(tf.TensorSpec([NUM_ROWS, 3]))
    assert takes_extremes(function.graph, NUM_ROWS) is expected


def test_shapes_that_are_not_known_may_be_of_rows():
    function = tf.function(lambda x: x - tf.reduce_max(x)).get_concrete_function(tf.TensorSpec(None))
    assert takes_extremes(function.graph, NUM_ROWS)
