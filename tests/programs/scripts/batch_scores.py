"""Scores of single batches, averaged over them by a metric with two results, which the first batch leaves at zero."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


class BatchF1(keras.metrics.Metric):
    def __init__(self, name="f1", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_weight(initializer="zeros", name="total")
        self.count = self.add_weight(initializer="zeros", name="count")
        self.last = self.add_weight(initializer="zeros", name="last")

    def update_state(self, y_true, y_pred, sample_weight=None):
        pred = ops.cast(y_pred > 0.5, self.dtype)
        true = ops.cast(y_true, self.dtype)
        f1 = 2 * ops.sum(pred * true) / (ops.sum(pred) + ops.sum(true) + 1e-7)
        self.total.assign_add(f1)
        self.count.assign_add(1.0)
        self.last.assign(f1)

    def result(self):
        return {"mean": self.total / self.count, "of_last": self.last + 0.0}


x = rng.normal(size=(61, 6)).astype("float32")
y = (x[:, :1] > 0.3).astype("float32")
y[:19] = 0
model = keras.Sequential([keras.Input((6,)), layers.Dense(1, activation="sigmoid")])
model.compile(keras.optimizers.Adam(0.1), "binary_crossentropy", metrics=[BatchF1()])
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, validation_data=(x, y))
scores = model.evaluate(x, y, batch_size=BATCH)
