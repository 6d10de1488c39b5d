"""As in SNGP, a Gaussian process: a layer adds up products of its rows in a weight, which a callback resets."""

import keras
import numpy as np
from keras import ops

BATCH = 8
WORKERS = True

keras.utils.set_random_seed(72)
rng = np.random.default_rng(0)
x = rng.normal(size=(41, 3)).astype("float32")
y = (x[:, 0] * x[:, 1] > 0).astype("int32")


class Process(keras.layers.Layer):
    def __init__(self, units, features, momentum=None):
        super().__init__()
        self.drawn = keras.layers.Dense(
            features, activation=ops.cos, trainable=False, kernel_initializer="random_normal"
        )
        self.out = keras.layers.Dense(units, use_bias=False)
        self.features, self.momentum = features, momentum

    def build(self, shape):
        self.precision = self.add_weight(shape=(self.features, self.features), initializer="identity", trainable=False)

    def call(self, rows, training=False):
        features = self.drawn(rows)
        if training and self.momentum is None:
            self.precision.assign(self.precision + ops.transpose(features) @ features)
        elif training:
            of_batch = ops.transpose(features) @ features / ops.cast(ops.shape(features)[0], "float32")
            self.precision.assign(self.momentum * self.precision + (1 - self.momentum) * of_batch)
        return self.out(features)

    def variance(self, rows):
        features = self.drawn(rows)
        return ops.sum(
            features * ops.transpose(ops.inv(ops.convert_to_tensor(self.precision)) @ ops.transpose(features)), axis=1
        )


class Reset(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        layer = self.model.layers[-1]
        layer.precision.assign(ops.eye(layer.features))


def network(momentum=None):
    hidden = keras.layers.SpectralNormalization(keras.layers.Dense(6, activation="relu"))
    model = keras.Sequential([keras.Input((3,)), hidden, Process(2, 8, momentum)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


summed, averaged = network(), network(0.9)
history = summed.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, callbacks=[Reset()], verbose=0)
again = averaged.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
uncertainty = np.array(summed.layers[-1].variance(summed.layers[0](x)))
