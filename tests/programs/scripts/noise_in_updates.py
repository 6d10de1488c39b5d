"""Noise where weights are updated: a constraint, a jittered rate, an optimizer that adds it after a burn-in."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(58)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(29, 6)).astype("float32"), rng.normal(size=(29, 1)).astype("float32")
generator = keras.random.SeedGenerator(3)


class Langevin(keras.optimizers.SGD):
    def update_step(self, gradient, variable, learning_rate):
        is_on = ops.cast(self.iterations >= 4, "float32")
        noise = is_on * keras.random.normal(gradient.shape, seed=generator)
        super().update_step(gradient + noise, variable, learning_rate)


class Jitter(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.1 * keras.random.uniform((), 0.5, 1.5, seed=generator)


def shaken(weight):
    return weight + 0.01 * keras.random.normal(weight.shape, seed=generator)


model = keras.Sequential([keras.Input((6,)), layers.Dense(1, kernel_constraint=shaken)])
model.compile(Langevin(Jitter(), momentum=0.9), "mse")
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
