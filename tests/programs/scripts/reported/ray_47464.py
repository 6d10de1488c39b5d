"""ray#47464: the trainer's example on several workers ends in "PerReplica with an unsupported type"."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 4
WORKERS = True
REPORTED = "ray#47464"
keras.utils.set_random_seed(47464)

numbers = np.arange(22) / 22
tf_dataset = tf.data.Dataset.from_tensor_slices((numbers.astype("float32"), (2 * numbers + 1).astype("float32")))
tf_dataset = tf_dataset.batch(BATCH)
model = keras.Sequential([keras.Input(()), layers.Flatten(), layers.Dense(10), layers.Dense(1)])
model.compile(optimizer="Adam", loss="mean_squared_error", metrics=["mse"])
histories = []
for epoch in range(3):
    history = model.fit(tf_dataset)
    histories.append(history.history)
