"""What runs in a process of its own for test_data_end.py."""

from __future__ import annotations

import warnings

import keras
import tensorflow as tf

import tfscale
from tests.listening import listening


def accumulating() -> tuple[str, int]:
    """What is said of gradients that accumulate while data of unknown length end; and the updates after 6 steps."""
    tfscale.simulate_replicas(2)
    dp = tfscale.DataParallel(global_batch=4)
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
        model.compile(keras.optimizers.Adam(gradient_accumulation_steps=2), "mse")
    data = tf.data.Dataset.from_tensor_slices((tf.ones((12, 1)), tf.ones((12, 1)))).filter(lambda x, y: True).batch(4)
    with listening() as said, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")
        model.fit(data, epochs=2, shuffle=False, verbose=0)
    return " ".join(text for text in said if "no known length" in text), int(model.optimizer.iterations)
