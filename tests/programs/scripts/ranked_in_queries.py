"""Learning to rank: pairs of documents of one query and another relevance; at first each query has one document."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(61)
rng = np.random.default_rng(0)
x = rng.normal(size=(53, 4)).astype("float32")
query = np.where(np.arange(53) < 32, np.arange(53), 100 + np.arange(53) // 5).astype("int32")
y = rng.integers(0, 3, 53)


class Model(keras.Model):
    def train_step(self, data):
        (x, q), y = data
        with tf.GradientTape() as tape:
            s = self(x, training=True)[:, 0]
            loss = ops.mean((s - ops.cast(y, s.dtype)) ** 2)
            pair = ops.logical_and(q[:, None] == q[None], y[:, None] > y[None])
            loss += ops.mean(ops.cast(pair, s.dtype) * ops.softplus(s[None] - s[:, None]))
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        return {"error": loss}


inputs = keras.Input((4,))
model = Model(inputs, layers.Dense(1)(inputs))
model.compile(keras.optimizers.SGD(0.1))
history = model.fit((x, query), y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
