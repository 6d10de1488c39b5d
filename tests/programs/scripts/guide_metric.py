"""The guide's metric whose result is its variable."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


class CategoricalTruePositives(keras.metrics.Metric):
    def __init__(self, name="true_positives", **kwargs):
        super().__init__(name=name, **kwargs)
        self.true_positives = self.add_weight(name="tp", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        values = ops.equal(ops.cast(y_true, "int32"), ops.cast(ops.argmax(y_pred, axis=1), "int32"))
        self.true_positives.assign_add(ops.sum(ops.cast(values, "float32")))

    def result(self):
        return self.true_positives


x, y = rng.normal(size=(29, 6)).astype("float32"), rng.integers(0, 3, 29)
model = keras.Sequential([keras.Input((6,)), layers.Dense(3, activation="softmax")])
model.compile("sgd", "sparse_categorical_crossentropy", metrics=[CategoricalTruePositives()])
history = model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False)
