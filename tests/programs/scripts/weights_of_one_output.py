"""Weights for one of two outputs only, `(x, y, None)` from `tf.data`, and losses by name."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 16
WORKERS = True
keras.utils.set_random_seed(308)

rng = np.random.default_rng(0)
x = rng.normal(size=(50, 6)).astype("float32")
price, kind = rng.normal(size=(50, 1)).astype("float32"), rng.integers(0, 3, 50)
weights = rng.uniform(0, 2, 50).astype("float32")


def make_model():
    inputs = keras.Input((6,))
    h = layers.Dense(8, activation="tanh")(inputs)
    outputs = [layers.Dense(1, name="price")(h), layers.Dense(3, activation="softmax", name="kind")(h)]
    made = keras.Model(inputs, outputs)
    losses = ["mse", "sparse_categorical_crossentropy"]
    made.compile(keras.optimizers.Adam(0.02), loss=losses, loss_weights=[0.3, 1.0], metrics=[["mae"], ["accuracy"]])
    return made


weighted, unweighted = make_model(), make_model()
history = weighted.fit(
    x, [price, kind], sample_weight=[None, weights], batch_size=BATCH, epochs=2, shuffle=False, verbose=0
)
data = tf.data.Dataset.from_tensor_slices((x, (price, kind))).batch(BATCH).map(lambda a, b: (a, b, None))
history_unweighted = unweighted.fit(data, epochs=2, validation_data=data, verbose=0)
