"""Batches whose parts have several numbers of rows: what is exact is in the corpus (`semi_supervised`, `fix_match`)."""

import numpy as np
import pytest
import tensorflow as tf

from tests.processes import run_case
from tfscale import DataError
from tfscale.framework.datasets import batch_sizes
from tfscale.replicas.batch_rows import RowPlan, leaves_of, plan_rows
from tfscale.replicas.replica_batch import LocalReplicas, split_global_batch

ROWS = np.ones((12, 2), np.float32)
SAID = {
    "trains": ("no error", "trained"),
    "one of them is the batch": ("no error", "trained"),
    "another batch": ("DataError", "batches of the global batch, 8 examples"),
    "check off": ("DataError", 'prepare(model, check="auto")'),
    "eager": ("ParityError", "x with more rows than y[0], y[1]. It was not: that takes a graph"),
    "draws": ("ParityError", "With keras.random and a keras.random.SeedGenerator"),
    "Keras's own step": ("DataError", "what is a side input"),
    "told by nothing": ("DataError", "one row for each example"),
}


@pytest.fixture(scope="module")
def refused():
    return run_case("tests.training.check.cases_several_sizes:refused", args=(2,))


@pytest.mark.parametrize("name", SAID)
def test_what_cannot_be_divided_is_refused(refused, name):
    kind, part = SAID[name]
    assert refused[name][0] == kind
    assert part in refused[name][1]


def _batched(size, **how):
    return tf.data.Dataset.from_tensor_slices(ROWS).batch(size, **how)


@pytest.mark.parametrize(
    ("dataset", "sizes"),
    [
        (_batched(3), [3]),
        (_batched(3).map(lambda rows: (2 * rows, rows)).prefetch(1), [3, 3]),
        (tf.data.Dataset.zip((_batched(3), (_batched(2), _batched(4).map(lambda rows: -rows)))).repeat(), [3, 2, 4]),
        (tf.data.Dataset.zip((_batched(3), _batched(2))).map(lambda x, y: (y, x)), [None, None]),
        (_batched(3).map(lambda rows: rows[0]), [None]),
        (_batched(3).unbatch(), [None]),
        (_batched(3).unbatch().batch(5).cache(), [5]),
        (tf.data.Dataset.range(3), [None]),
    ],
)
def test_sizes_are_those_of_the_pipeline(dataset, sizes):
    assert batch_sizes(dataset) == sizes


def _planned(x, y, sizes):
    return plan_rows(leaves_of((tf.TensorSpec([x, 2]), tf.TensorSpec([y, 2]))), sizes)


def test_rows_are_those_of_which_there_are_most():
    assert _planned(2, 6, [None, None]) == RowPlan(reference=1, other_sizes=(0,))
    assert _planned(None, None, [6, 2]) == RowPlan(reference=0, other_sizes=(1,))


@pytest.mark.parametrize(("x", "y", "sizes"), [(6, 6, [6, 6]), (None, None, [6, 6]), (None, None, [None, 6])])
def test_one_size_is_planned_as_ever(x, y, sizes):
    assert _planned(x, y, sizes) == _planned(x, y, None)


def test_nothing_is_guessed_for_keras_own_steps():
    with pytest.raises(DataError, match="side input"):
        _planned(6, 2, None)


def test_who_has_most_is_divided_and_the_others_are_whole():
    data = (tf.reshape(tf.range(10.0), [5, 2]), tf.ones([2, 2]))
    parts = split_global_batch(data, LocalReplicas(0, 3, 3), sizes=[None, None])
    assert [len(part.data[0]) for part in parts] == [1, 2, 2]
    assert [len(part.data[1]) for part in parts] == [2, 2, 2]
