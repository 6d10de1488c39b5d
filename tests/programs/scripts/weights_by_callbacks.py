"""Callbacks that average weights: SWA that assigns them at the end, an EMA that is swapped in for each validation."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 16
WORKERS = True
keras.utils.set_random_seed(42)
rng = np.random.default_rng(0)
x, y = rng.uniform(size=(50, 8, 8, 1)).astype("float32"), rng.integers(0, 3, 50)


class SWA(keras.callbacks.Callback):
    def __init__(self, start_epoch):
        super().__init__()
        self.start_epoch, self.count = start_epoch, 0

    def on_train_begin(self, logs=None):
        self.average = [np.zeros_like(w) for w in self.model.get_weights()]

    def on_epoch_end(self, epoch, logs=None):
        if epoch >= self.start_epoch:
            self.count += 1
            self.average = [a + (w - a) / self.count for a, w in zip(self.average, self.model.get_weights())]

    def on_train_end(self, logs=None):
        self.model.set_weights(self.average)


class EMACallback(keras.callbacks.Callback):
    def __init__(self, decay=0.9):
        super().__init__()
        self.decay = decay

    def on_train_begin(self, logs=None):
        self.ema = [tf.Variable(v, trainable=False) for v in self.model.trainable_variables]

    def on_train_batch_end(self, batch, logs=None):
        for e, v in zip(self.ema, self.model.trainable_variables):
            e.assign(self.decay * e + (1 - self.decay) * v)

    def on_test_begin(self, logs=None):
        self.backup = [tf.identity(v) for v in self.model.trainable_variables]
        for e, v in zip(self.ema, self.model.trainable_variables):
            v.assign(e)

    def on_test_end(self, logs=None):
        for b, v in zip(self.backup, self.model.trainable_variables):
            v.assign(b)


model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(4, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.GlobalAveragePooling2D(),
        layers.Dense(3),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
history = model.fit(
    x, y, batch_size=BATCH, epochs=3, shuffle=False, validation_data=(x[:21], y[:21]), callbacks=[SWA(1), EMACallback()]
)
scores = model.evaluate(x, y, batch_size=BATCH)
