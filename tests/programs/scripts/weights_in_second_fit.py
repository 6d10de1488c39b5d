"""A compute_loss that divides by the sum of the weights where there are any: the first fit has none, the second has."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(5)


class Weighted(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        errors = tf.reduce_mean(tf.square(y - y_pred), axis=-1)
        if sample_weight is None:
            return tf.reduce_mean(errors)
        return tf.reduce_sum(errors * sample_weight) / tf.reduce_sum(sample_weight)


inputs = keras.Input((5,))
model = Weighted(inputs, layers.Dense(2)(layers.Dense(8, activation="tanh")(inputs)))
model.compile(optimizer=keras.optimizers.SGD(0.1))

rng = np.random.default_rng(0)
x, y = rng.normal(size=(21, 5)).astype("float32"), rng.normal(size=(21, 2)).astype("float32")
weights = rng.uniform(0, 3, 21).astype("float32")
first = model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False)
before = model.evaluate(x, y, batch_size=BATCH)
second = model.fit(x, y, sample_weight=weights, batch_size=BATCH, epochs=1, shuffle=False)
after = model.evaluate(x, y, sample_weight=weights, batch_size=BATCH)
one_more = model.train_on_batch(x[:7], y[:7], sample_weight=weights[:7])
