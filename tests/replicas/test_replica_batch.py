"""Splitting a global batch; one process, no strategy."""

import numpy as np
import pytest
import tensorflow as tf

from tfscale import DataError
from tfscale.replicas.replica_batch import LocalReplicas, split_global_batch


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 8, 24, 25])
@pytest.mark.parametrize("total", [1, 2, 3, 4, 8])
def test_shares_are_all_rows_in_order_and_differ_by_one(rows, total):
    data = (tf.range(rows), tf.reshape(tf.range(2 * rows), (rows, 2)))
    parts = split_global_batch(data, LocalReplicas(0, total, total))
    sizes = [int(part.num_examples) for part in parts]
    assert sum(sizes) == rows
    assert max(sizes) - min(sizes) <= 1
    assert {int(part.global_examples) for part in parts} == {rows}
    for leaf in (0, 1):
        counted = [part.data[leaf][: int(part.num_examples)] for part in parts]
        np.testing.assert_array_equal(np.concatenate(counted), data[leaf])
        if rows:
            # A replica without rows computes on one that does not count.
            assert all(len(part.data[leaf]) >= 1 for part in parts)


def test_workers_take_their_own_rows():
    x = tf.range(10)
    alone = split_global_batch(x, LocalReplicas(0, 4, 4))
    first = split_global_batch(x, LocalReplicas(0, 2, 4))
    second = split_global_batch(x, LocalReplicas(2, 2, 4))
    for expected, found in zip(alone, first + second, strict=True):
        np.testing.assert_array_equal(found.data, expected.data)


def test_empty_batches_where_no_stand_in_is_wanted():
    parts = split_global_batch(tf.range(2), LocalReplicas(0, 4, 4), stand_in=False)
    assert [len(part.data) for part in parts] == [0, 1, 0, 1]


def test_structures_scalars_and_missing_parts():
    data = ({"a": tf.ones((5, 2)), "b": [tf.zeros(5)]}, tf.constant(3.0))
    first, second = split_global_batch(data, LocalReplicas(0, 2, 2))
    assert first.data[0]["a"].shape == (2, 2)
    assert second.data[0]["b"][0].shape == (3,)
    assert float(first.data[1]) == float(second.data[1]) == 3.0


def test_sparse_and_ragged_rows():
    dense = np.diag(np.arange(1, 6))
    sparse = tf.sparse.from_dense(dense)
    ragged = tf.ragged.constant([[1], [2, 3], [], [4], [5, 6]])
    parts = split_global_batch((sparse, ragged), LocalReplicas(0, 3, 3))
    found = np.concatenate([tf.sparse.to_dense(part.data[0]) for part in parts])
    np.testing.assert_array_equal(found, dense)
    assert [row for part in parts for row in part.data[1].to_list()] == ragged.to_list()


def test_rows_unknown_while_tracing():
    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def sizes(x):
        return [part.num_examples for part in split_global_batch(x, LocalReplicas(0, 3, 3))]

    assert [int(size) for size in sizes(tf.zeros((8, 3)))] == [2, 3, 3]


@pytest.mark.parametrize("data", [tf.constant(1.0), (tf.constant(1.0), tf.constant(2))])
def test_only_scalars(data):
    with pytest.raises(DataError, match=r"batch dimension(.|\n)*Received: only scalars"):
        split_global_batch(data, LocalReplicas(0, 2, 2))
