"""Mixup in a train_step: pairs of rows in an order that is drawn, weights from a beta distribution."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
RANDOM = True
keras.utils.set_random_seed(54)


class MixupModel(keras.Sequential):
    def __init__(self, *args, alpha=0.4, **kwargs):
        super().__init__(*args, **kwargs)
        self.alpha = alpha
        self.seed_generator = keras.random.SeedGenerator(7)

    def train_step(self, data):
        x, y = data
        count = tf.shape(x)[0]
        order = keras.random.shuffle(tf.range(count), seed=self.seed_generator)
        weight = keras.random.beta((count, 1), self.alpha, self.alpha, seed=self.seed_generator)
        x = weight * x + (1 - weight) * tf.gather(x, order)
        y = weight * y + (1 - weight) * tf.gather(y, order)
        return super().train_step((x, y))


model = MixupModel([keras.Input((5,)), layers.Dense(8, activation="relu"), layers.Dense(3, activation="softmax")])
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="categorical_crossentropy", metrics=["accuracy"])
rng = np.random.default_rng(0)
x = rng.normal(size=(28, 5)).astype("float32")
y = keras.utils.to_categorical(rng.integers(0, 3, 28), 3)
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
