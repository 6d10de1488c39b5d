"""Keras's guide to training on several GPUs: everything that makes variables under the scope, then `fit`."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 8


def get_compiled_model():
    inputs = keras.Input(shape=(64,))
    x = keras.layers.Dense(16, activation="relu")(inputs)
    x = keras.layers.Dense(16, activation="relu")(x)
    outputs = keras.layers.Dense(10)(x)
    model = keras.Model(inputs, outputs)
    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    return model


def get_dataset():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(51, 64)).astype("float32"), rng.integers(0, 10, 51)
    return tuple(
        tf.data.Dataset.from_tensor_slices((x[part], y[part])).batch(BATCH)
        for part in (slice(0, 29), slice(29, 40), slice(40, 51))
    )


strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(101)
with strategy.scope():
    model = get_compiled_model()
    train_dataset, val_dataset, test_dataset = get_dataset()
    history = model.fit(train_dataset, epochs=2, validation_data=val_dataset)
    results = model.evaluate(test_dataset)
