"""The classical GAN by train_on_batch: a combined model with a frozen discriminator, batches put together by numpy."""

import keras
import numpy as np
from keras import layers

BATCH = 8
keras.utils.set_random_seed(55)

discriminator = keras.Sequential(
    [keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(1, activation="sigmoid")]
)
discriminator.compile(loss="binary_crossentropy", optimizer=keras.optimizers.Adam(2e-3), metrics=["accuracy"])
generator = keras.Sequential([keras.Input((3,)), layers.Dense(8), layers.BatchNormalization(), layers.Dense(6)])
z = keras.Input((3,))
discriminator.trainable = False
combined = keras.Model(z, discriminator(generator(z)))
combined.compile(loss="binary_crossentropy", optimizer=keras.optimizers.Adam(2e-3))

rng = np.random.default_rng(0)
rows = rng.normal(1.0, 1.0, (40, 6)).astype("float32")
d_losses, g_losses = [], []
for step in range(5):
    noise = rng.normal(size=(BATCH, 3)).astype("float32")
    fakes = generator.predict(noise, verbose=0)
    reals = rows[step * BATCH : (step + 1) * BATCH]
    d_losses.append(discriminator.train_on_batch(reals, np.ones((BATCH, 1)), return_dict=True)["loss"])
    d_losses.append(discriminator.train_on_batch(fakes, np.zeros((BATCH, 1)), return_dict=True)["loss"])
    g_losses.append(combined.train_on_batch(noise, np.ones((BATCH, 1)), return_dict=True)["loss"])
samples = generator.predict(rng.normal(size=(5, 3)).astype("float32"))
