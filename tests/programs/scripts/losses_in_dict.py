"""A train_step whose losses are held in a dict and in a list, with weights by name."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(33)


class MultiTask(keras.Model):
    def __init__(self):
        super().__init__()
        self.trunk = layers.Dense(8, activation="tanh")
        self.heads = {"size": layers.Dense(1), "kind": layers.Dense(3)}
        self.size_head, self.kind_head = self.heads.values()
        self.losses_by_name = {
            "size": keras.losses.Huber(),
            "kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        }
        self.extra = [(0.3, keras.losses.MeanAbsoluteError()), (0.1, keras.losses.LogCosh())]

    def call(self, x):
        features = self.trunk(x)
        return {"size": self.size_head(features), "kind": self.kind_head(features)}

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            parts = {name: loss(y[name], y_pred[name]) for name, loss in self.losses_by_name.items()}
            total = sum(parts.values()) + sum(weight * loss(y["size"], y_pred["size"]) for weight, loss in self.extra)
        gradients = tape.gradient(total, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": total, **parts}


rng = np.random.default_rng(0)
x = rng.normal(size=(20, 5)).astype("float32")
y = {"size": rng.normal(size=(20, 1)).astype("float32"), "kind": rng.integers(0, 3, 20)}
model = MultiTask()
model.compile(optimizer=keras.optimizers.SGD(0.1))
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)
predictions = model.predict(x)
