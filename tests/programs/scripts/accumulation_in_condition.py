"""Gradients accumulated by hand in variables and applied at every third step, by tf.cond on a counter."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


class GA(keras.Model):
    def __init__(self, n=3, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.n = tf.constant(n, dtype=tf.int32)
        self.n_acum_step = tf.Variable(0, dtype=tf.int32, trainable=False)
        self.acc = [tf.Variable(tf.zeros(v.shape, v.dtype), trainable=False) for v in self.trainable_variables]

    def train_step(self, data):
        self.n_acum_step.assign_add(1)
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        for a, g in zip(self.acc, tape.gradient(loss, self.trainable_variables)):
            a.assign_add(g)
        tf.cond(tf.equal(self.n_acum_step, self.n), self.apply_accu, lambda: None)
        return self.compute_metrics(x, y, y_pred, None)

    def apply_accu(self):
        self.optimizer.apply_gradients(zip(self.acc, self.trainable_variables))
        self.n_acum_step.assign(0)
        for a in self.acc:
            a.assign(tf.zeros_like(a))


x, y = rng.normal(size=(29, 6)).astype("float32"), rng.integers(0, 3, 29)
inp = keras.Input((6,))
model = GA(3, inp, layers.Dense(3, activation="softmax")(layers.Dense(8, activation="relu")(inp)))
model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.optimizer.build(model.trainable_variables)
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)
