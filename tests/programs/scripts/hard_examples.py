"""Online hard examples: the loss of a train_step is the mean of the five hardest rows of a batch, at most."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 16
keras.utils.set_random_seed(2)


class Ohem(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            rows = tf.reduce_mean(tf.square(y - self(x, training=True)), axis=-1)
            hard, _ = tf.math.top_k(rows, k=tf.minimum(5, tf.shape(rows)[0]))
            loss = tf.reduce_mean(hard)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        return {"loss": loss}


inputs = keras.Input((5,))
model = Ohem(inputs, layers.Dense(1)(inputs))
model.compile("sgd")
rng = np.random.default_rng(0)
X, y = rng.normal(size=(45, 5)).astype("float32"), rng.normal(size=(45, 1)).astype("float32")
history = model.fit(X, y, batch_size=BATCH, epochs=2, shuffle=False)
