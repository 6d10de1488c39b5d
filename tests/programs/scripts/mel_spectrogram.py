"""A classifier of sounds: a mel spectrogram in the model, whose floor lies 80 dB below the loudest of the batch."""

import keras
import numpy as np
from keras import layers

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(81)

inputs = keras.Input((256,))
x = layers.MelSpectrogram(fft_length=64, sequence_stride=32, num_mel_bins=6)(inputs)
x = layers.Permute((2, 1))(layers.Rescaling(0.05)(x))
x = layers.Conv1D(5, 3, activation="tanh")(x)
model = keras.Model(inputs, layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling1D()(x)))
model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])

rng = np.random.default_rng(0)
loudness = 10.0 ** rng.uniform(-6, 1, (29, 1))
sounds, labels = (loudness * rng.normal(size=(29, 256))).astype("float32"), rng.integers(0, 3, 29)
history = model.fit(sounds, labels, batch_size=BATCH, epochs=2, shuffle=False)
scores = model.evaluate(sounds, labels, batch_size=BATCH)
predictions = model.predict(sounds, batch_size=BATCH)
