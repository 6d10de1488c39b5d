"""A data set of one dict that holds inputs, targets and weights, taken apart in the train_step and test_step."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(44)


class Model(keras.Model):
    def train_step(self, batch):
        with tf.GradientTape() as tape:
            y_pred = self(batch["x"], training=True)
            loss = self.compute_loss(y=batch["y"], y_pred=y_pred, sample_weight=batch["weight"])
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss, **self.compute_metrics(batch["x"], batch["y"], y_pred, batch["weight"])}

    def test_step(self, batch):
        y_pred = self(batch["x"], training=False)
        return self.compute_metrics(batch["x"], batch["y"], y_pred, batch["weight"])


inputs = keras.Input((6,))
model = Model(inputs, layers.Dense(2)(layers.Dense(5, activation="tanh")(inputs)))
model.compile("adam", loss="mse", metrics=["mae"], weighted_metrics=["mse"])
rng = np.random.default_rng(0)
data = {
    "x": rng.normal(size=(28, 6)).astype("float32"),
    "y": rng.normal(size=(28, 2)).astype("float32"),
    "weight": rng.uniform(size=28).astype("float32"),
}
dataset = tf.data.Dataset.from_tensor_slices(data)
history = model.fit(dataset.take(20).batch(BATCH), epochs=2, validation_data=dataset.skip(20).batch(BATCH))
