"""A callback that turns a term on at an epoch by a Python flag, and has the train function made anew."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(97)


class TwoPhase(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = layers.Dense(3), layers.Dense(6)
        self.cluster = False
        self.centres = self.add_weight(shape=(2, 3), name="centres")

    def call(self, x):
        return self.decoder(self.encoder(x))

    def train_step(self, x):
        with tf.GradientTape() as tape:
            z = self.encoder(x)
            loss = tf.reduce_mean((self.decoder(z) - x) ** 2)
            if self.cluster:
                d = tf.reduce_sum((z[:, None] - self.centres[None]) ** 2, -1)
                q = 1.0 / (1.0 + d)
                q = q / tf.reduce_sum(q, 1, keepdims=True)
                p = q**2 / tf.reduce_sum(q, 0)
                p = tf.stop_gradient(p / tf.reduce_sum(p, 1, keepdims=True))
                loss += tf.reduce_mean(tf.reduce_sum(p * tf.math.log(p / q), 1))
        variables = self.trainable_variables if self.cluster else self.encoder.weights + self.decoder.weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss}


class Switch(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            self.model.cluster = True
            self.model.make_train_function(force=True)


x = np.random.default_rng(0).normal(size=(28, 6)).astype("float32")
model = TwoPhase()
model.encoder.build((None, 6))
model.decoder.build((None, 3))
model.compile(optimizer=keras.optimizers.SGD(0.05))
model.optimizer.build(model.trainable_variables)
history = model.fit(x, batch_size=BATCH, epochs=4, shuffle=False, callbacks=[Switch()])
