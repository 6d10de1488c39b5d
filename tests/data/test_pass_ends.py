"""Batches and ends of passes are noted where the data are read, of any structure, and the data stay what they are."""

import numpy as np
import pytest
import tensorflow as tf

from tfscale.cluster.passes import PassesRead
from tfscale.data.pass_ends import PassEnds

NUMBERS = tf.data.Dataset.range(10).batch(4)
DATA = {
    "one tensor": NUMBERS,
    "a tuple": NUMBERS.map(lambda each: (each, tf.cast(each, tf.float32))),
    "a dict": NUMBERS.map(lambda each: {"x": each, "y": -each}),
    "nested": NUMBERS.map(lambda each: ({"a": each}, (each, each + 1))),
    "ragged": NUMBERS.map(lambda each: (tf.ragged.range(each), each)),
    "sparse": NUMBERS.map(lambda each: (tf.sparse.from_dense(each), each)),
    "no weights": NUMBERS.map(lambda each: (each, each, None)),
    "weights of one of two": NUMBERS.map(lambda each: (each, (each, each), (None, each))),
    "text": NUMBERS.map(lambda each: (tf.strings.as_string(each), each)),
}


def _leaves(batch):
    return [np.asarray(leaf) for leaf in tf.nest.flatten(batch, expand_composites=True) if leaf is not None]


@pytest.mark.parametrize("name", DATA)
def test_data_stay_what_they_are(name):
    ends = PassEnds(PassesRead())
    noted = ends.noting(DATA[name])
    assert noted.element_spec == DATA[name].element_spec
    for batch, expected in zip(noted, DATA[name], strict=True):
        for leaf, other in zip(_leaves(batch), _leaves(expected), strict=True):
            np.testing.assert_array_equal(leaf, other)
    assert ends.num_ended == 1
    assert ends.batches_of(1) == 3


def test_each_pass_has_its_number():
    ends = PassEnds(PassesRead())
    lengths = iter([2, 0, 5])
    data = tf.data.Dataset.from_generator(
        lambda: iter(range(next(lengths))), output_signature=tf.TensorSpec((), tf.int64)
    )
    noted = ends.noting(data)
    assert [len(list(noted)) for _ in range(3)] == [2, 0, 5]
    assert [ends.batches_of(number) for number in (1, 2, 3, 4)] == [2, 0, 5, -1]
    assert ends.num_ended == 3


def test_a_pass_that_is_left_has_not_ended():
    ends = PassEnds(PassesRead())
    noted = ends.noting(tf.data.Dataset.range(100))
    next(iter(noted))
    assert ends.num_ended == 0
    assert len(list(noted)) == 100
    assert ends.num_ended == 2
    assert ends.batches_of(1) == -1


def test_two_data_sets_are_noted_apart():
    passes = PassesRead()
    one, other = PassEnds(passes), PassEnds(passes)
    assert len(list(one.noting(NUMBERS))) == len(list(other.noting(NUMBERS.take(2)))) + 1
    assert (one.batches_of(1), other.batches_of(1)) == (3, 2)
