"""Cases of a loss scale in float16 that is too large at first: which steps are skipped?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import tfscale

BATCH = 24
_RNG = np.random.default_rng(2)
# Targets so large that float16 holds their gradients at a 32nd of the first scale.
X = _RNG.normal(size=(100, 8)).astype("float32")
Y = (16 * _RNG.normal(size=(100, 1))).astype("float32")


class Own(keras.Sequential):
    """A step as in Keras's guide to half precision."""

    def loss_by_hand(self, y: Any, y_pred: Any) -> Any:
        return tf.reduce_mean(tf.square(y_pred - y))

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.loss_by_hand(y, self(x, training=True))
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        self.optimizer.apply(self.between(gradients), self.trainable_variables)
        return {"loss": loss}

    def between(self, gradients: Any) -> Any:
        return gradients


class ComputingLoss(Own):
    def loss_by_hand(self, y: Any, y_pred: Any) -> Any:
        return self.compute_loss(None, y, y_pred)


class Summing(Own):
    def loss_by_hand(self, y: Any, y_pred: Any) -> Any:
        return tf.reduce_sum(tf.square(y_pred - y)) / BATCH


class Clipping(Own):
    def between(self, gradients: Any) -> Any:
        scale = self.optimizer.scale_loss(1.0)
        clipped, _ = tf.clip_by_global_norm([each / scale for each in gradients], 20.0)
        return [each * scale for each in clipped]


class SummingGradients(Clipping):
    def between(self, gradients: Any) -> Any:
        return super().between(tfscale.sum_gradients(gradients))


class Decaying(Own):
    """Adds a decay to gradients that are scaled."""

    def between(self, gradients: Any) -> Any:
        scale = self.optimizer.scale_loss(1.0)
        return [
            each + 0.1 * scale * tf.convert_to_tensor(variable)
            for each, variable in zip(gradients, self.trainable_variables, strict=True)
        ]


class Recurrent(Own):
    """A loop over time, whose gradients come out of a loop too."""

    def __init__(self, layers: Any):
        del layers
        super().__init__(
            [
                keras.Input((8,)),
                keras.layers.Reshape((4, 2)),
                keras.layers.LSTM(8),
                keras.layers.Dense(1, dtype="float32"),
            ]
        )


class _Centre(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return x - ops.mean(x, axis=0, keepdims=True)


class Centring(keras.Sequential):
    """Rows that meet, behind a bias whose gradient is nothing but rounding."""

    def __init__(self, layers: Any):
        super().__init__([*layers[:2], keras.layers.Dense(6, name="centred"), _Centre(), layers[-1]])


BUILDS: dict[str, Callable[..., keras.Model]] = {
    "Keras's own step": keras.Sequential,
    "step of one's own": Own,
    "compute_loss": ComputingLoss,
    "sum divided by the batch": Summing,
    "clipped by hand": Clipping,
    "clipped, summed by name": SummingGradients,
    "decay by hand": Decaying,
    "loop over time": Recurrent,
    "rows that meet": Centring,
}
NAMES = (*BUILDS, "jit_compile")
EAGER = ("Keras's own step", "step of one's own", "compute_loss")


def fits(num_replicas: int) -> dict[str, Any]:
    """By name: after each step the loss scale as a power of two, and the weights at the end."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH)
    keras.config.set_dtype_policy("mixed_float16")
    return {name: _fit(dp, name) for name in NAMES}


def fits_eagerly(num_replicas: int) -> dict[str, Any]:
    """As `fits`, of steps that run eagerly, with targets for which no step is skipped."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH)
    keras.config.set_dtype_policy("mixed_float16")
    return {name: _fit(dp, name, Y / 64, run_eagerly=True) for name in EAGER}


def _fit(dp: Any, name: str, y: Any = Y, **compiled: Any) -> Any:
    with dp.scope():
        keras.utils.set_random_seed(1)
        layers = [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(1, dtype="float32"),
        ]
        model = dp.prepare(BUILDS.get(name, keras.Sequential)(layers))
        model.compile(keras.optimizers.Adam(1e-2), loss="mse", jit_compile=name == "jit_compile", **compiled)
    scales: list[float] = []

    class Scales(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            scales.append(float(ops.log2(model.optimizer.dynamic_scale)))

    try:
        model.fit(X, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0, callbacks=[Scales()])
    except tfscale.TfscaleError as error:
        return type(error).__name__, str(error)
    # Adam makes whole steps of rounding, and nobody sees what they make of that bias.
    seen = [each for each in model.weights if not each.path.endswith("centred/bias")]
    return scales, np.concatenate([np.ravel(each) for each in seen])
