"""Super-resolution by a transposed convolution: a metric class, metric functions, a callback that counts by itself."""

import math

import keras
import numpy as np
from keras import layers, ops
from sklearn.datasets import load_digits

BATCH = 12
keras.utils.set_random_seed(66)


class MeanPSNR(keras.metrics.Metric):
    def __init__(self, name="mean_psnr"):
        super().__init__(name=name)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        errors = ops.mean(ops.square(y_true - y_pred), axis=(1, 2, 3))
        self.total.assign_add(ops.sum(-10.0 * ops.log10(errors)))
        self.count.assign_add(ops.cast(ops.shape(errors)[0], self.count.dtype))

    def result(self):
        return self.total / self.count


def worst_pixel(y_true, y_pred):
    return ops.max(ops.abs(y_true - y_pred), axis=(1, 2, 3))


def explained(y_true, y_pred):
    return 1.0 - ops.sum(ops.square(y_true - y_pred)) / ops.sum(ops.square(y_true - ops.mean(y_true)))


class ESPCNCallback(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.psnr = []

    def on_test_batch_end(self, batch, logs=None):
        self.psnr.append(10 * math.log10(1 / logs["loss"]))

    def on_epoch_end(self, epoch, logs=None):
        psnr_by_epoch.append(float(np.mean(self.psnr)))


psnr_by_epoch = []
targets = (load_digits().images[:56, ..., None] / 16.0).astype("float32")
images = targets[:, ::2, ::2]
inputs = keras.Input((None, None, 1))
x = layers.Conv2D(8, 3, activation="tanh", padding="same", kernel_initializer="orthogonal")(inputs)
x = layers.Conv2D(4, 3, padding="same")(x)
x = layers.Conv2DTranspose(1, 2, strides=2)(x)
model = keras.Model(inputs, x)
model.compile(keras.optimizers.Adam(1e-2), loss="mse", metrics=[MeanPSNR(), worst_pixel, explained])
history = model.fit(
    images[:44],
    targets[:44],
    batch_size=BATCH,
    epochs=2,
    shuffle=False,
    validation_data=(images[44:], targets[44:]),
    callbacks=[ESPCNCallback()],
)
