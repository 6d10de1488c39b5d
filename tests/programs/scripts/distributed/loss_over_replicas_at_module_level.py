"""A train_step that divides its mean loss by the number of replicas, which the script asked for at its top."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 8
strategy = tf.distribute.MirroredStrategy()
_REPLICAS = strategy.num_replicas_in_sync
_SHARE = 1 / _REPLICAS
keras.utils.set_random_seed(111)


class Model(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            errors = tf.square(y - self(x, training=True))
            loss = tf.reduce_mean(errors) / _REPLICAS
            penalty = keras.ops.sum(keras.ops.square(self.trainable_variables[0])) * _SHARE
            total = loss + 0.01 * penalty
        self.optimizer.apply(tape.gradient(total, self.trainable_variables), self.trainable_variables)
        return {"mean_loss": loss, "penalty": penalty}


with strategy.scope():
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(6, activation="tanh")(inputs)
    model = Model(inputs, keras.layers.Dense(2)(hidden))
    model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9))

rng = np.random.default_rng(0)
x, y = rng.normal(size=(21, 4)).astype("float32"), rng.normal(size=(21, 2)).astype("float32")
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)
