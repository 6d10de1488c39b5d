"""What scripts draw, once it is silenced."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.programs import noise


@pytest.fixture
def silenced(monkeypatch):
    for module in (keras.random, tf.random):
        for name in ("normal", "uniform"):
            monkeypatch.setattr(module, name, getattr(module, name))
    noise.silence()


def test_whole_numbers_lie_in_their_range_and_are_the_same_for_each_row(silenced):
    drawn = tf.random.uniform((3, 50), minval=2, maxval=9, dtype=tf.int64)

    assert drawn.dtype == tf.int64
    assert np.min(drawn) >= 2
    assert np.max(drawn) < 9
    np.testing.assert_array_equal(drawn[0], drawn[2])


def test_one_whole_number_for_each_row_is_drawn_in_a_graph(silenced):
    drawn = tf.function(lambda x: tf.random.uniform((tf.shape(x)[0],), minval=0, maxval=20, dtype=tf.int64))(tf.ones(4))

    assert len(set(drawn.numpy())) == 1
