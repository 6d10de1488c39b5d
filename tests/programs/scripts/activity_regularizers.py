"""Penalties of all kinds: kernels, activities, a layer's add_loss that is a sum, one that is a mean and only trains."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(32)


class Sparsity(layers.Layer):
    def call(self, inputs, training=False):
        self.add_loss(1e-3 * ops.sum(ops.abs(inputs)))
        if training:
            self.add_loss(1e-2 * ops.mean(ops.square(inputs)))
        return inputs


class Orthogonal(keras.regularizers.Regularizer):
    def __call__(self, x):
        gram = ops.matmul(ops.transpose(x), x)
        return 1e-3 * ops.sum(ops.square(gram - ops.eye(gram.shape[0], dtype=gram.dtype)))


inputs = keras.Input((6,))
x = layers.Dense(
    8, activation="tanh", kernel_regularizer=keras.regularizers.L1L2(1e-3, 1e-3), activity_regularizer="l2"
)(inputs)
x = Sparsity()(x)
x = layers.ActivityRegularization(l1=1e-3)(x)
outputs = layers.Dense(2, kernel_regularizer=Orthogonal())(x)
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
rng = np.random.default_rng(0)
x_all, y_all = rng.normal(size=(28, 6)).astype("float32"), rng.normal(size=(28, 2)).astype("float32")
history = model.fit(
    x_all[:20], y_all[:20], batch_size=BATCH, epochs=2, shuffle=False, validation_data=(x_all[20:], y_all[20:])
)
results = model.evaluate(x_all[20:], y_all[20:], batch_size=BATCH)
