"""`fit`, `evaluate` and `predict` on what `strategy.experimental_distribute_dataset` returns."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 8
MAY_BE_REFUSED = "ParityError"
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(108)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(32, 5)).astype("float32"), rng.integers(0, 3, 32)
train = tf.data.Dataset.from_tensor_slices((x[:21], y[:21])).batch(BATCH)
test = tf.data.Dataset.from_tensor_slices((x[21:], y[21:])).batch(BATCH)
train_dist, test_dist = map(strategy.experimental_distribute_dataset, (train, test))
with strategy.scope():
    model = keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, activation="softmax")]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(train_dist, epochs=3, steps_per_epoch=3, validation_data=test_dist, validation_steps=2)
results = model.evaluate(test_dist, steps=2, return_dict=True)
