"""Metrics that are no sums: an F1 averaged over batches, the last batch's, a moving average, a dict as a result."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


class F1(keras.metrics.Metric):
    def __init__(self, name="f1", **kwargs):
        super().__init__(name=name, **kwargs)
        self.matrix = self.add_weight(shape=(3, 3), initializer="zeros", name="matrix")

    def update_state(self, y_true, y_pred, sample_weight=None):
        cm = tf.math.confusion_matrix(tf.reshape(y_true, [-1]), tf.argmax(y_pred, -1), 3, dtype=self.matrix.dtype)
        self.matrix.assign_add(cm)

    def result(self):
        m = ops.convert_to_tensor(self.matrix)
        tp = ops.diagonal(m)
        return ops.mean(2 * tp / (ops.sum(m, 0) + ops.sum(m, 1) + 1e-7))


class BatchF1(keras.metrics.Metric):
    """Averages the F1 of batches, as many notebooks do."""

    def __init__(self, name="batch_f1", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_weight(initializer="zeros", name="total")
        self.count = self.add_weight(initializer="zeros", name="count")
        self.last = self.add_weight(initializer="zeros", name="last")
        self.ema = self.add_weight(initializer="zeros", name="ema")

    def update_state(self, y_true, y_pred, sample_weight=None):
        pred = ops.cast(ops.equal(ops.argmax(y_pred, -1), 1), self.dtype)
        true = ops.cast(ops.equal(ops.reshape(y_true, (-1,)), 1), self.dtype)
        tp = ops.sum(pred * true)
        f1 = 2 * tp / (ops.sum(pred) + ops.sum(true) + 1e-7)
        self.total.assign_add(f1)
        self.count.assign_add(1.0)
        self.last.assign(f1)
        self.ema.assign(0.5 * self.ema + 0.5 * f1)

    def result(self):
        return {"mean_f1": self.total / self.count, "last_f1": self.last, "ema_f1": self.ema + 0.0}


def max_confidence(y_true, y_pred):
    return ops.max(y_pred)


x, y = rng.normal(size=(29, 6)).astype("float32"), rng.integers(0, 3, 29)
model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(3, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=[F1(), BatchF1(), max_confidence])
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, validation_data=(x[:11], y[:11]))
scores = model.evaluate(x, y, batch_size=BATCH, return_dict=True)
