"""tensorflow#35093: a custom loss of two inputs may not work under MirroredStrategy."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
REPORTED = "tensorflow#35093"
keras.utils.set_random_seed(35093)


class PrototypeLoss(layers.Layer):
    def build(self, shapes):
        self.prototypes = self.add_weight(shape=(4, shapes[0][-1]), initializer="random_normal", name="prototypes")

    def call(self, inputs):
        features, label_mask = inputs
        distance = ops.sum(ops.square(features[:, None] - self.prototypes), axis=-1)
        weight = ops.softmax(-distance)
        attracted = ops.sum(label_mask * distance, axis=1)
        repelled = ops.sum((1 - label_mask) * distance * weight, axis=1)
        self.add_loss(ops.mean(attracted) - 0.1 * ops.mean(repelled))
        return -distance


images, label_ref = keras.Input((6,), name="images"), keras.Input((4,), name="label_ref")
features = layers.Dense(3, activation="tanh")(images)
model = keras.Model([images, label_ref], PrototypeLoss()([features, label_ref]))
model.compile(optimizer=keras.optimizers.Adam(0.02))
rng = np.random.default_rng(0)
x, labels = rng.normal(size=(27, 6)).astype("float32"), np.eye(4, dtype="float32")[rng.integers(0, 4, 27)]
history = model.fit([x, labels], batch_size=BATCH, epochs=2, shuffle=False)
