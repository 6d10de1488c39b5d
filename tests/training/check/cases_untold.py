"""Run in a fresh process: what loops by hand on three replicas make of rows, and whether they are warned of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tfscale.training.check import untold

_RANDOM = np.random.default_rng(0)
TOKENS = np.where(np.arange(9) < _RANDOM.integers(2, 9, 8)[:, None], _RANDOM.integers(1, 5, (8, 9)), 0)
TEXTS = np.array([" ".join("abcde"[token - 1] for token in row if token) for row in TOKENS])
CASES = (
    *("ragged rows", "texts", "a text layer", "rows given to Python", "and to Python's tensors"),
    *("a length by hand", "a length of all rows", "a layer with a length"),
    *("row after row given to Python", "all rows given to Python"),
)
WARNED = CASES[:5]


def found() -> dict[str, int]:
    """How many warnings each of them gives, traced twice."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=len(TOKENS))
    with dp.strategy.scope():
        layer = keras.layers.Embedding(9, 2)
        layer.build()
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(layer.trainable_variables)
    return {name: _count(dp.strategy, layer, optimizer, look) for name, look in _looks().items()}


def _looks() -> dict[str, Callable[[Any, Any], Any]]:
    def ragged(tokens: Any) -> Any:
        return tf.RaggedTensor.from_tensor(tokens, padding=0)

    def as_long_as_all(tokens: Any, texts: Any) -> Any:
        longest = tf.reduce_max(tfscale.gather_rows(ragged(tokens).row_lengths()))
        return ragged(tokens).to_tensor(shape=tf.stack([-1, longest]))

    def in_python(tokens: Any) -> Any:
        return tf.ensure_shape(
            tf.numpy_function(lambda rows: rows[::-1], [tokens], tokens.dtype), (*tokens.shape[:-1], 9)
        )

    layer = keras.layers.TextVectorization(vocabulary=list("abcde"))
    limited = keras.layers.TextVectorization(vocabulary=list("abcde"), output_sequence_length=6)
    looks = (
        lambda tokens, texts: ragged(tokens).to_tensor(),
        lambda tokens, texts: tf.strings.to_hash_bucket_fast(tf.strings.split(texts), 9).to_tensor(),
        lambda tokens, texts: layer(texts),
        lambda tokens, texts: in_python(tokens),
        lambda tokens, texts: tf.ensure_shape(
            tf.py_function(lambda rows: rows[::-1], [tokens], tokens.dtype), (None, 9)
        ),
        lambda tokens, texts: ragged(tokens).to_tensor(shape=[None, 9]),
        as_long_as_all,
        lambda tokens, texts: limited(texts),
        lambda tokens, texts: tf.map_fn(in_python, tokens),
        lambda tokens, texts: in_python(tfscale.gather_rows(tokens))[: tf.shape(tokens)[0]],
    )
    return dict(zip(CASES, looks, strict=True))


def _count(strategy: Any, layer: Any, optimizer: Any, look: Callable[[Any, Any], Any]) -> int:
    def step(tokens: Any, texts: Any) -> Any:
        with tf.GradientTape() as tape:
            # What stands last, be it padding: a mean over all of them is a quotient, which is refused.
            each = tf.reduce_sum(layer(look(tokens, texts))[:, -1], axis=-1)
            loss = tf.nn.compute_average_loss(each, global_batch_size=len(TOKENS))
        weights = layer.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    untold.HAS_WARNED.forget(strategy)
    data = tf.data.Dataset.from_tensor_slices((TOKENS, TEXTS)).batch(len(TOKENS))
    [batch] = strategy.experimental_distribute_dataset(data)
    with mock.patch.object(untold, "_log") as log:
        for _ in range(2):
            tf.function(lambda *args: strategy.run(step, args=args))(*batch)
    return log.warning.call_count
