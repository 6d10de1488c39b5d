"""Losses of reduction="none" at module level, averaged by hand: one by a mean, one by a sum over the batch's size."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(35)

squared = keras.losses.MeanSquaredError(reduction="none")
entropy = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")


class Model(keras.Model):
    def train_step(self, data):
        x, (y, z) = data
        with tf.GradientTape() as tape:
            y_pred, z_pred = self(x, training=True)
            regression_loss = tf.reduce_mean(squared(y, y_pred))
            rows = tf.cast(tf.shape(x)[0], z_pred.dtype)
            classification_loss = tf.reduce_sum(entropy(z, z_pred)) / rows
            loss = regression_loss + classification_loss
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss, "regression": regression_loss, "classification": classification_loss}


inputs = keras.Input((4,))
features = layers.Dense(6, activation="tanh")(inputs)
model = Model(inputs, [layers.Dense(2)(features), layers.Dense(1)(features)])
model.compile(optimizer=keras.optimizers.SGD(0.05))
rng = np.random.default_rng(0)
x, y = rng.normal(size=(20, 4)).astype("float32"), rng.normal(size=(20, 2)).astype("float32")
z = rng.integers(0, 2, (20, 1)).astype("float32")
history = model.fit(x, (y, z), batch_size=BATCH, epochs=3, shuffle=False)
