"""Run in a fresh process: sparse gradients of replicas with different numbers of rows."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

import tfscale


def captured() -> float:
    """How far the update by a batch that a loop has captured is from that of one device; 8 rows on three replicas."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=8)
    lengths = np.array([4, 2, 3, 4, 1, 2, 2, 1])
    tokens = np.where(np.arange(4) < lengths[:, None], np.random.default_rng(0).integers(1, 9, (8, 4)), 0)
    with dp.strategy.scope():
        layer = keras.layers.Embedding(9, 2)
        layer.build()
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(layer.trainable_variables)
    [kernel] = layer.trainable_variables
    expected = kernel.numpy()
    for token in tokens[tokens > 0]:
        expected[token] -= 0.1 / 8

    def step(own: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            filled = tf.RaggedTensor.from_tensor(own, padding=0).to_tensor()
            mask = tf.cast(filled > 0, "float32")[:, :, None]
            loss = tf.reduce_sum(layer(filled) * mask) / 8.0
        optimizer.apply(tape.gradient(loss, [kernel.value]), [kernel])

    # So its tokens are made of constants of the graph: as many as no other replica has.
    [batch] = dp.strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(tokens).batch(8))
    tf.function(lambda: dp.strategy.run(step, args=(batch,)))()
    return float(np.abs(kernel.numpy() - expected).max())
