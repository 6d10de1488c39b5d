"""keras#16788: a model of one's own layers runs on one device when it is loaded under MirroredStrategy."""

import os
import tempfile

import keras
import numpy as np

BATCH = 8
REPORTED = "keras#16788"
keras.utils.set_random_seed(16788)


@keras.saving.register_keras_serializable("demo")
class Cross(keras.layers.Layer):
    """x0 * (W x + b) + x."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], shape[-1]), initializer="glorot_uniform")
        self.bias = self.add_weight(shape=(shape[-1],), initializer="zeros")

    def call(self, x):
        return x * (keras.ops.matmul(x, self.kernel) + self.bias) + x


@keras.saving.register_keras_serializable("demo")
class Ranking(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.cross, self.head = Cross(), keras.layers.Dense(1, activation="sigmoid")

    def call(self, x):
        return self.head(self.cross(x))


path = os.path.join(tempfile.mkdtemp(), "demo.keras")
rng = np.random.default_rng(0)
x = rng.normal(size=(30, 6)).astype("float32")
y = (x[:, :1] * x[:, 1:2] > 0).astype("float32")
first = Ranking()
first.compile(optimizer=keras.optimizers.Adam(0.01), loss="binary_crossentropy")
first.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
first.save(path)
model = keras.models.load_model(path)
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
predictions = model.predict(x, batch_size=BATCH)
