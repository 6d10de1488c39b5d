"""keras#20585: `fit` under MultiWorkerMirroredStrategy does not start."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 16
WORKERS = True
REPORTED = "keras#20585"
keras.utils.set_random_seed(20585)


def mnist_dataset(batch_size):
    rng = np.random.default_rng(0)
    x_train, y_train = rng.uniform(size=(60, 8, 8)).astype("float32"), rng.integers(0, 10, 60)
    return tf.data.Dataset.from_tensor_slices((x_train, y_train)).repeat().batch(batch_size)


def build_and_compile_cnn_model():
    model = keras.Sequential(
        [
            keras.Input(shape=(8, 8)),
            layers.Reshape(target_shape=(8, 8, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(16, activation="relu"),
            layers.Dense(10),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=0.01),
        metrics=["accuracy"],
    )
    return model


multi_worker_model = build_and_compile_cnn_model()
history = multi_worker_model.fit(mnist_dataset(BATCH), epochs=3, steps_per_epoch=4)
