"""An optimizer of one's own: Adam that takes the mean of each gradient away before its update."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(67)


class GCAdam(keras.optimizers.Adam):
    def update_step(self, gradient, variable, learning_rate):
        if len(variable.shape) > 1:
            gradient = gradient - ops.mean(gradient, axis=list(range(len(variable.shape) - 1)), keepdims=True)
        super().update_step(gradient, variable, learning_rate)


class LearningRateLogger(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        rates.append(float(self.model.optimizer.learning_rate))


rates = []
model = keras.Sequential(
    [
        keras.Input((8, 2)),
        layers.Conv1D(6, 3, activation="tanh"),
        layers.GlobalAveragePooling1D(),
        layers.Dense(1, activation="sigmoid"),
    ]
)
schedule = keras.optimizers.schedules.PolynomialDecay(1e-2, decay_steps=9, end_learning_rate=1e-3)
model.compile(loss="binary_crossentropy", optimizer=GCAdam(schedule), metrics=["accuracy"])
rng = np.random.default_rng(0)
x, y = rng.normal(size=(20, 8, 2)).astype("float32"), rng.integers(0, 2, (20, 1)).astype("float32")
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False, callbacks=[LearningRateLogger()])
