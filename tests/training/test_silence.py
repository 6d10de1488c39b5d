"""Traced functions that draw nothing; one process, no strategy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfscale.training.silence import silenced

SEED = tf.constant([1, 2])


@pytest.mark.parametrize(
    "draw",
    [
        lambda shape: tf.random.normal(shape),
        lambda shape: tf.random.uniform(shape),
        lambda shape: tf.random.truncated_normal(shape),
        lambda shape: tf.cast(tf.random.uniform(shape, 2, 9, tf.int32), tf.float32),
        lambda shape: tf.random.stateless_normal(shape, SEED),
        lambda shape: tf.cast(tf.random.stateless_uniform(shape, SEED, 2, 9, tf.int32), tf.float32),
        lambda shape: keras.random.normal(shape, seed=1),
        lambda shape: keras.random.dropout(tf.ones(shape), 0.5, seed=1),
    ],
)
def test_every_row_is_the_same(draw):
    def noisy(x):
        return [x + draw(tf.shape(x))]

    concrete = tf.function(noisy).get_concrete_function(tf.TensorSpec([None, 3]))
    rows = np.arange(12, dtype="float32").reshape(4, 3)
    call = silenced(concrete)
    (whole,) = call(tf.constant(rows))
    assert call is not concrete
    parts = [call(tf.constant(part))[0] for part in (rows[:1], rows[1:])]
    assert np.array_equal(whole, np.concatenate(parts))
    assert len({float(value) for value in np.ravel(whole - rows)}) == 1


def test_inside_of_loops_and_with_variables():
    weight = tf.Variable(2.0)

    def noisy(x):
        total = tf.while_loop(
            lambda index, _: index < 3,
            lambda index, total: (index + 1, total + weight * tf.random.normal([])),
            (tf.constant(0), x),
        )[1]
        weight.assign_add(1.0)
        return [total]

    concrete = tf.function(noisy, autograph=False).get_concrete_function(tf.TensorSpec([]))
    call = silenced(concrete)
    first = float(call(tf.constant(1.0))[0])
    weight.assign(2.0)
    assert float(call(tf.constant(1.0))[0]) == first
    assert float(weight) == 3.0


def test_what_draws_nothing_is_left_as_it_is():
    concrete = tf.function(lambda x: [x + 1]).get_concrete_function(tf.TensorSpec([]))
    assert silenced(concrete) is concrete


def test_shuffled_rows_come_as_they_are():
    concrete = tf.function(lambda x: [tf.random.shuffle(x)]).get_concrete_function(tf.TensorSpec([None]))
    assert np.array_equal(silenced(concrete)(tf.range(5.0))[0], np.arange(5))
