"""Cases of code of one's own, of which a device runs the rows in parts, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import tfscale
from tests.training.check.cases_step_check import Messages

BATCH = 8
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(30, 6)).astype("float32")
Y = _RNG.normal(size=(30, 8)).astype("float32")


def among_rows(y_true: Any, y_pred: Any) -> Any:
    """A cross-entropy of each row among all of them."""
    scores = ops.matmul(y_true, ops.transpose(y_pred))
    return keras.losses.sparse_categorical_crossentropy(ops.arange(ops.shape(scores)[0]), scores, from_logits=True)


def of_each_row(y_true: Any, y_pred: Any) -> Any:
    return ops.mean(ops.abs(y_true - y_pred) ** 3, axis=-1)


class Centred(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return x - ops.mean(x, axis=0)


class Squared(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return x + 0.1 * ops.square(x)


class Summing(keras.layers.Layer):
    """Adds a sum over its rows to a loss that is a mean of them."""

    def __init__(self, says_so: bool = False):
        super().__init__()
        self.says_so = says_so

    def call(self, x: Any) -> Any:
        total = 0.01 * tf.reduce_sum(tf.square(x))
        self.add_loss(tfscale.sum_over_examples(total) if self.says_so else total)
        return x


class Counting(keras.layers.Layer):
    """Knows how many steps it has taken."""

    def build(self, shape: Any) -> None:
        self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.steps.assign_add(1.0)
        return x * (1.0 + 0.1 * self.steps)


class Pruned(keras.layers.Layer):
    """Makes its mask anew at each third step, in a branch."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 8))
        self.mask = self.add_weight(shape=(shape[-1], 8), initializer="ones", trainable=False)
        self.steps = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:

            def prune() -> bool:
                size = tf.abs(tf.convert_to_tensor(self.kernel))
                self.mask.assign(tf.cast(size >= tf.reduce_mean(size), size.dtype))
                return True

            tf.cond(tf.equal(self.steps.value % 3, 2), prune, lambda: False)
            self.steps.assign_add(1)
        return tf.matmul(x, self.kernel * self.mask)


def _through(layer: Callable[[], keras.layers.Layer], **compiled: Any) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        inputs = keras.Input((6,))
        outputs = keras.layers.Dense(8)(layer()(inputs))
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.SGD(0.05), **{"loss": "mse", **compiled})
        return model

    return build


# By name.
MIXING: dict[str, Callable[[], keras.Model]] = {
    "loss": _through(Squared, loss=among_rows),
    "layer": _through(Centred),
    "metric": _through(Squared, metrics=[among_rows]),
    "sum": _through(Summing),
}
ROW_BY_ROW: dict[str, Callable[[], keras.Model]] = {
    "all three": _through(Squared, loss=of_each_row, metrics=[of_each_row]),
    "sum that says so": _through(lambda: Summing(says_so=True)),
    "count of steps": _through(Counting),
    "assigned in a branch": _through(Pruned),
    "vector of the largest singular value": _through(
        lambda: keras.layers.SpectralNormalization(keras.layers.Dense(4)), loss=of_each_row
    ),
}


def _fit(model: keras.Model) -> tuple[dict[str, list[float]], list[np.ndarray]]:
    history = model.fit(X, Y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history
    return history, model.get_weights()


def largest_difference(a: Any, b: Any) -> float:
    """Of the numbers of two nested structures."""
    pairs = zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True)
    return max(float(np.max(np.abs(np.asarray(mine) - np.asarray(other)))) for mine, other in pairs)


def in_parts(num_replicas: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """By name: how far it is from plain Keras, or the error; and whether anything was updated before that."""
    tfscale.simulate_replicas(num_replicas)
    found: dict[str, Any] = {}
    dp = tfscale.DataParallel(global_batch=BATCH, **arguments)
    for name, build in {**MIXING, **ROW_BY_ROW}.items():
        keras.utils.set_random_seed(1)
        expected = _fit(build())
        keras.utils.set_random_seed(1)
        with dp.scope():
            model = dp.prepare(build())
        try:
            found[name] = largest_difference(_fit(model), expected)
        except tfscale.TfscaleError as error:
            found[name] = type(error).__name__, str(error), int(model.optimizer.iterations)
    return found


def beside_batch_norm(num_replicas: int, arguments: dict[str, Any]) -> str:
    """What is said of a layer of one's own beside BatchNormalization."""
    tfscale.simulate_replicas(num_replicas)
    messages = Messages()
    dp = tfscale.DataParallel(global_batch=BATCH, batch_norm="local", **arguments)
    with dp.scope():
        model = dp.prepare(_through(lambda: keras.Sequential([keras.layers.BatchNormalization(), Squared()]))())
    try:
        _fit(model)
    except tfscale.TfscaleError as error:
        return f"{type(error).__name__}: {error}"
    return "\n".join(messages.kept)
