"""Run on several workers: what each gets of the others' rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import tfscale
from tfscale.replicas.agreement import gather_rows_of_workers

LENGTHS = ([[2, 0, 3], [1]], [[0], [4, 1, 2]])
"""By worker, how many values the rows of a ragged batch have: lists of lists, where rows are lists themselves."""


def rows_of(rank: int) -> dict[str, Any]:
    """Rows that a worker has: two of them on each, one on a third."""
    count = 2 if rank < 2 else 1
    lengths = (*LENGTHS, [[0]])[rank]
    inner = [length for row in lengths for length in row]
    ragged = tf.RaggedTensor.from_row_lengths(np.arange(sum(inner)) + 10 * rank, inner)
    ids = np.arange(count) + 100 * rank
    return {
        "dense": tf.constant(np.arange(count * 3).reshape(count, 3) + rank, tf.float32),
        "text": tf.constant([f"{rank} {row}" for row in range(count)]),
        "twice ragged": tf.RaggedTensor.from_row_lengths(ragged, [len(row) for row in lengths]),
        "ragged rows of vectors": tf.RaggedTensor.from_row_lengths(
            tf.ones([sum(map(len, lengths)), 2]) * rank, [len(row) for row in lengths]
        ),
        "nested": [tf.sparse.from_dense(np.eye(count, 4, k=rank)), ids],
    }


def gathered() -> list[list[Any]]:
    """What this worker has of all; and what there was."""
    dp = tfscale.DataParallel(global_batch=4)
    num_workers = dp.num_replicas
    everyone = gather_rows_of_workers(dp.strategy, rows_of(dp.rank))
    parts = [rows_of(rank) for rank in range(num_workers)]
    expected = [value for row in zip(*map(tf.nest.flatten, parts), strict=True) for value in [_together(row)]]
    return [[_plain(each) for each in tf.nest.flatten(found)] for found in (everyone, expected)]


def _together(leaves: Any) -> Any:
    if isinstance(leaves[0], tf.SparseTensor):
        return tf.sparse.concat(0, list(leaves))
    return tf.concat(list(leaves), 0)


def _plain(leaf: Any) -> Any:
    if isinstance(leaf, tf.SparseTensor):
        leaf = tf.sparse.to_dense(leaf)
    return leaf.to_list() if isinstance(leaf, tf.RaggedTensor) else leaf.numpy().tolist()
