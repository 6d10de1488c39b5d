"""keras#19340: training on several GPUs logs an accuracy above 1 and a loss of NaN."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 16
REPORTED = "keras#19340"
keras.utils.set_random_seed(19340)

rng = np.random.default_rng(0)
images, labels = rng.uniform(size=(60, 8, 8, 1)).astype("float32"), rng.integers(0, 10, 60)
train = tf.data.Dataset.from_tensor_slices((images[:33], labels[:33])).batch(BATCH)
validation = tf.data.Dataset.from_tensor_slices((images[33:], labels[33:])).batch(BATCH)
model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(6, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(10),
    ]
)
model.compile(
    optimizer=keras.optimizers.Adam(1e-2),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[keras.metrics.SparseCategoricalAccuracy()],
)
history = model.fit(train, epochs=2, validation_data=validation)
