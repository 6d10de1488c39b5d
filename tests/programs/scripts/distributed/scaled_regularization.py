"""A train_step with tf.nn.scale_regularization_loss beside tf.nn.compute_average_loss."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 8
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(106)

with strategy.scope():
    loss_fn = keras.losses.MeanSquaredError(reduction="none")


class Model(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            per_example_loss = loss_fn(y, self(x, training=True))
            loss = tf.nn.compute_average_loss(per_example_loss, global_batch_size=BATCH)
            loss += tf.nn.scale_regularization_loss(tf.add_n(self.losses))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"mean_loss": loss}


with strategy.scope():
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(6, activation="tanh", kernel_regularizer="l2")(inputs)
    model = Model(inputs, keras.layers.Dense(2)(hidden))
    model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9))

rng = np.random.default_rng(0)
x, y = rng.normal(size=(21, 4)).astype("float32"), rng.normal(size=(21, 2)).astype("float32")
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)
