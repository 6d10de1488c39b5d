"""What `dp.dataset` has to refuse, in one process."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import tfscale
from tests.data.example_rows import GLOBAL_BATCH, X, Y
from tfscale.data.dataset import GlobalDataset


def refused(kind: str) -> None:
    """What has to be refused."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, devices=1)
    examples = tf.data.Dataset.from_tensor_slices(X)
    sources = {
        "batched": lambda: examples.batch(10),
        "batched, then prefetched": lambda: examples.shuffle(5).padded_batch(10).prefetch(2),
        "batched, then mapped": lambda: (
            tf.data.Dataset.zip((examples, examples)).batch(10).map(lambda x, y: (x + y, y))
        ),
        "infinite": lambda: examples.repeat(),
        "unknown": lambda: examples.filter(lambda row: row[0] > 0),
        "lengths": lambda: (X, Y[:30]),
        "scalar": lambda: np.float32(3),
        "empty": lambda: X[:0],
        "empty stream": lambda: examples.take(0),
        "nothing": lambda: None,
        "text": lambda: "train",
        "ragged": lambda: {"a": tf.ragged.constant([[1], [2, 3]]), "b": Y[:2]},
    }
    arguments = {
        "seed": {"seed": -1},
        "large seed": {"seed": 2**63},
        "fractional seed": {"seed": 0.5},
        "cache": {"cache": "disk"},
        "kept with a seed": {"cache": "mapped", "map_fn": lambda example, seed: example},
        "kept without map_fn": {"cache": "mapped"},
    }
    if kind in arguments:
        GlobalDataset(X, strategy=dp.strategy, global_batch=GLOBAL_BATCH, **arguments[kind])
    elif kind == "map_fn":
        dp.dataset(X, map_fn=lambda row: tf.data.Dataset.from_tensors(row).repeat(2)).as_tf_data()
    elif kind == "load":
        dp.dataset(X, worker_load=[1, 2])
    elif kind == "dropped":
        dp.dataset(X[:5], drop_remainder=True)
    elif kind == "position":
        dp.dataset(X).start_at(0, 4)
    else:
        dp.dataset(sources[kind]())


def accepted() -> list[int]:
    """Single examples that look like batches, but are none; and the largest seed."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, devices=1)
    windows = tf.data.Dataset.from_tensor_slices(X).window(3).flat_map(lambda window: window.batch(3))
    windows = windows.apply(tf.data.experimental.assert_cardinality(11))
    summed = tf.data.Dataset.from_tensor_slices(X).batch(3).map(lambda rows: tf.reduce_sum(rows))
    unbatched = tf.data.Dataset.from_tensor_slices(X).batch(3).unbatch().map(lambda row: row)
    given = [windows, summed, unbatched.apply(tf.data.experimental.assert_cardinality(33))]
    seeded = GlobalDataset(X, strategy=dp.strategy, global_batch=GLOBAL_BATCH, seed=2**63 - 1, shuffle=True)
    return [*(dp.dataset(source).num_examples for source in given), len(np.unique(np.concatenate(list(seeded))))]
