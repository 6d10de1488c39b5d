"""Which data can be begun in the middle."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfscale import DataParallel
from tfscale.recovery.fit_data import FitData

X = np.arange(6.0)


def tf_data():
    return tf.data.Dataset.from_tensor_slices(X)


class Sequence(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return X[:2], X[:2]


DATA = {
    "arrays, shuffled by default": (lambda: {"x": X}, False),
    "arrays, shuffled": (lambda: {"x": X, "shuffle": True}, False),
    "arrays, in order": (lambda: {"x": X, "shuffle": False}, True),
    "nested arrays, in order": (lambda: {"x": {"a": X, "b": [X, X]}, "shuffle": False}, True),
    "tf.data": (lambda: {"x": tf_data().batch(2)}, True),
    "tf.data, mapped": (lambda: {"x": tf_data().map(lambda x: x + 1).batch(2).prefetch(1)}, True),
    "shuffled, seeded": (lambda: {"x": tf_data().shuffle(6, seed=1).batch(2)}, True),
    "shuffled, seeded and not": (lambda: {"x": tf_data().shuffle(6, seed=1).shuffle(6).batch(2)}, False),
    "shuffled deep inside": (lambda: {"x": tf_data().shuffle(6).map(lambda x: x).batch(2).repeat()}, False),
    "one order for all passes": (
        lambda: {"x": tf_data().shuffle(6, seed=1, reshuffle_each_iteration=False).batch(2)},
        True,
    ),
    "PyDataset": (lambda: {"x": Sequence()}, False),
    "generator": (lambda: {"x": (X for _ in range(3))}, False),
    "dp.dataset": (lambda: {"x": DataParallel(global_batch=2, devices=1).dataset(X, shuffle=True)}, True),
    "dp.dataset as tf.data": (
        lambda: {"x": DataParallel(global_batch=2, devices=1).dataset(X, shuffle=True).as_tf_data()},
        True,
    ),
}


@pytest.mark.parametrize("name", DATA)
def test_can_begin_within_an_epoch(name):
    make, expected = DATA[name]
    assert FitData(make(), 2).can_begin_within_epoch is expected
