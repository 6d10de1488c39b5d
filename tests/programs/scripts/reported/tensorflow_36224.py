"""tensorflow#36224: the loss is NaN on several GPUs when the last batch has fewer rows than there are."""

import keras
import numpy as np
from keras import layers

BATCH = 8
REPORTED = "tensorflow#36224"
keras.utils.set_random_seed(36224)

rng = np.random.default_rng(0)
images, labels = rng.uniform(size=(34, 8, 8, 1)).astype("float32"), rng.integers(0, 10, 34)
model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(6, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile(loss="sparse_categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
history = model.fit(
    images[:17],
    labels[:17],
    batch_size=BATCH,
    epochs=2,
    shuffle=False,
    validation_data=(images[17:], labels[17:]),
    validation_batch_size=BATCH,
)
