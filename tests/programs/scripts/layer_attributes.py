"""A layer leaves its losses as attributes (sums over the batch, a count in a variable), and the step adds them up."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 8
WORKERS = True

keras.utils.set_random_seed(71)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(41, 6)).astype("float32"), rng.integers(0, 3, 41)


class Gated(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.gate = keras.layers.Dense(4, activation="softmax")
        self.experts = [keras.layers.Dense(5, activation="tanh") for _ in range(4)]
        self.used = tf.Variable(tf.zeros(4), trainable=False)

    def call(self, rows):
        share = self.gate(rows)
        chosen = tf.one_hot(tf.argmax(share, axis=1), 4)
        self.used.assign_add(tf.reduce_sum(chosen, axis=0))
        load = tf.reduce_sum(share, axis=0)
        self.unevenness = tf.reduce_mean(tf.square(load - tf.reduce_mean(load)))
        self.overflow = tf.reduce_sum(tf.nn.relu(self.used - 12.0))
        self.certainty = tf.reduce_mean(tf.reduce_sum(share * tf.math.log(share + 1e-6), axis=1))
        outputs = tf.stack([expert(rows) for expert in self.experts], axis=1)
        return tf.reduce_sum(outputs * (share * chosen)[..., None], axis=1)


class Classifier(keras.Model):
    def __init__(self):
        super().__init__()
        self.gated = Gated()
        self.out = keras.layers.Dense(3, activation="softmax")

    def call(self, rows):
        return self.out(self.gated(rows))

    def _total(self, x, y, training):
        loss = self.compute_loss(x, y, self(x, training=training))
        extra = 0.01 * (self.gated.unevenness + self.gated.overflow + self.gated.certainty)
        return loss + extra, extra

    def train_step(self, data):
        with tf.GradientTape() as tape:
            total, extra = self._total(*data, training=True)
        gradients = tape.gradient(total, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": total, "extra": extra}

    def test_step(self, data):
        total, extra = self._total(*data, training=False)
        return {"loss": total, "extra": extra}


model = Classifier()
model.compile(keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy")
history = model.fit(x, y, batch_size=BATCH, epochs=2, validation_data=(x[:17], y[:17]), shuffle=False, verbose=0)
used = model.gated.used.numpy()
