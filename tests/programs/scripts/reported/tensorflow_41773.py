"""tensorflow#41773: `train_on_batch` with MirroredStrategy fails, and in `strategy.run` as well."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
REPORTED = "tensorflow#41773"
keras.utils.set_random_seed(41773)

rng = np.random.default_rng(0)
x, y = rng.uniform(size=(28, 8, 8)).astype("float32"), rng.integers(0, 10, 28)
train_dataset = tf.data.Dataset.from_tensor_slices((x[:20], y[:20])).batch(BATCH)
model = keras.Sequential(
    [
        keras.Input((8, 8)),
        layers.Flatten(),
        layers.Dense(12, activation="relu"),
        layers.Dropout(0.0),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
logs = []
for epoch in range(2):
    for x_batch, y_batch in train_dataset:
        logs.append(model.train_on_batch(x_batch, y_batch, return_dict=True))
    model.reset_metrics()
    logs.append(model.test_on_batch(x[20:], y[20:], return_dict=True))
    model.reset_metrics()
predictions = model.predict_on_batch(x[20:25])
