"""A loop of train_on_batch and test_on_batch, after a fit, over a model with a layer of the script's own."""

import keras
import numpy as np
from keras import layers

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(31)


class Scale(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, inputs):
        return inputs * self.scale


rng = np.random.default_rng(0)
x = rng.normal(size=(29, 5)).astype("float32")
y = rng.integers(0, 2, 29).astype("float32")
model = keras.Sequential(
    [keras.Input((5,)), layers.Dense(6, activation="tanh"), Scale(), layers.Dense(1, activation="sigmoid")]
)
model.compile("adam", loss="binary_crossentropy", metrics=["mae"])
history = model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False)
logs = []
for start in range(0, 29, BATCH):
    rows = slice(start, start + BATCH)
    logs.append(model.train_on_batch(x[rows], y[rows], return_dict=True))
logs.append(model.test_on_batch(x[:7], y[:7], return_dict=True))
predicted = model.predict_on_batch(x[:7])
