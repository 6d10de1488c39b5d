"""A convolutional autoencoder that removes noise; the encoder inside of it predicts by itself."""

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

BATCH = 12
keras.utils.set_random_seed(10)

images = (load_digits().images[:56, ..., None] / 16.0).astype("float32")
noisy = np.clip(images + 0.2 * np.random.default_rng(0).normal(size=images.shape), 0.0, 1.0).astype("float32")

inputs = keras.Input((8, 8, 1))
x = layers.Conv2D(8, 3, activation="relu", padding="same")(inputs)
encoded = layers.MaxPooling2D(2, padding="same")(x)
x = layers.Conv2DTranspose(8, 3, strides=2, activation="relu", padding="same")(encoded)
decoded = layers.Conv2D(1, 3, activation="sigmoid", padding="same")(x)

autoencoder = keras.Model(inputs, decoded)
encoder = keras.Model(inputs, encoded)
autoencoder.compile(optimizer="adam", loss="binary_crossentropy")
history = autoencoder.fit(
    x=noisy[:44],
    y=images[:44],
    epochs=2,
    batch_size=BATCH,
    shuffle=False,
    validation_data=(noisy[44:], images[44:]),
)
predictions = autoencoder.predict(noisy[44:])
codes = encoder.predict(noisy[:20], batch_size=BATCH)
