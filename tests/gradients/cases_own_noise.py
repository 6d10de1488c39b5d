"""Cases of noise that a step adds to its gradients."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.check.cases_step_check import Messages

STEPS, WIDTH = 6, 500


class Noisy(keras.Model):
    """Adds noise to gradients of zero: all that its weights become is noise."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.net = keras.layers.Dense(WIDTH)
        self.seeds = keras.random.SeedGenerator(3)
        self.noise = NOISES[name]

    def call(self, inputs: Any) -> Any:
        return self.net(inputs)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply([self.noise(self, gradient) for gradient in gradients], variables)
        return {"loss": loss}


def _stateless(model: Noisy, gradient: Any) -> Any:
    seed = tf.stack([tf.cast(model.optimizer.iterations.value, tf.int32), 7])
    return gradient + tf.random.stateless_normal(gradient.shape, seed)


NOISES: dict[str, Any] = {
    "tf.random": lambda model, gradient: gradient + 1.0 * tf.random.normal(gradient.shape),
    "keras.random": lambda model, gradient: gradient - keras.random.normal(gradient.shape, seed=model.seeds),
    "a seed by hand": _stateless,
}


def spread(name: str) -> tuple[float, bool, str]:
    """The deviation of the noise of one step, whether all copies are equal, and what is said; or an error."""
    messages, dp = Messages(), _data_parallel()
    with dp.scope():
        model = dp.prepare(Noisy(name))
        model.compile(keras.optimizers.SGD(1.0), "mse")
        model.net.build((None, 4))
    begun = model.net.kernel.numpy()
    zeros = np.zeros((24 * STEPS, WIDTH), "float32")
    model.fit(zeros[:, :4], zeros, batch_size=24, shuffle=False, verbose=0)
    copies = [np.asarray(copy) for copy in dp.strategy.experimental_local_results(model.net.kernel.value)]
    are_equal = all(np.array_equal(copies[0], copy) for copy in copies)
    return float(np.std(copies[0] - begun) / np.sqrt(STEPS)), are_equal, "\n".join(messages.kept)


def drawn_weights() -> list[str]:
    """What is said of a layer that draws its weights, and of a penalty for what it has drawn."""
    messages, dp = Messages(), _data_parallel()

    class Bayesian(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.mean = self.add_weight(shape=(shape[-1], 3), name="mean")
            self.spread = self.add_weight(shape=(shape[-1], 3), name="spread")

        def call(self, inputs: Any) -> Any:
            weights = self.mean + self.spread * tf.random.normal(self.mean.shape)
            self.add_loss(0.1 * tf.reduce_sum(tf.square(weights)))
            return inputs @ weights

    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((4,)), Bayesian()]))
        model.compile("sgd", "mse")
    rows = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")
    model.fit(rows, rows[:, :3], batch_size=24, shuffle=False, verbose=0)
    return messages.kept


def refused(name: str) -> str:
    """The error of a step."""
    try:
        spread(name)
    except tfscale.TfscaleError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _data_parallel() -> tfscale.DataParallel:
    tfscale.simulate_replicas(3)
    keras.utils.set_random_seed(1)
    return tfscale.DataParallel(global_batch=24)
