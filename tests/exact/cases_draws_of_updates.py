"""Programs that draw where weights are updated, or of what a regularizer is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.listening import listening

_RNG = np.random.default_rng(0)
_X, _Y = (_RNG.normal(size=(29, width)).astype("float32") for width in (6, 1))


class NoisyMomentum(keras.optimizers.SGD):
    """Adds noise to gradients from the third step on."""

    def __init__(self) -> None:
        super().__init__(0.1, momentum=0.9)
        self.generator = keras.random.SeedGenerator(3)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        is_late = keras.ops.cast(self.iterations >= 2, "float32")
        noise = is_late * keras.random.normal(gradient.shape, seed=self.generator)
        super().update_step(gradient + noise, variable, learning_rate)


class Jitter(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.random.SeedGenerator(5)

    def __call__(self, step: Any) -> Any:
        del step
        return 0.05 * keras.random.uniform((), seed=self.generator)


class NoisyStep(keras.Model):
    """Adds noise to gradients between tape and optimizer."""

    generator: Any = None

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients = [each + 0.1 * keras.random.normal(each.shape, seed=self.generator) for each in gradients]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def _noisy(kind: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    generator = keras.random.SeedGenerator(7)
    return lambda weight: kind(weight, 0.1 * keras.random.normal(weight.shape, seed=generator))


def _model(optimizer: Any, kind: type[keras.Model] = keras.Model, **of_kernel: Any) -> keras.Model:
    inputs = keras.Input((6,))
    model = kind(inputs, keras.layers.Dense(1, **of_kernel)(inputs))
    if isinstance(model, NoisyStep):
        model.generator = keras.random.SeedGenerator(11)
    model.compile(optimizer, "mse")
    return model


def _drawn_by_each(weight: Any) -> Any:
    return weight + 0.2 * tf.random.normal(weight.shape)


def _unseeded(weight: Any) -> Any:
    return weight + keras.random.normal(weight.shape)


# Constraints by what is wrong with them.
REFUSED = {"drawn by each": _drawn_by_each}


PROGRAMS: dict[str, Callable[[], keras.Model]] = {
    "a constraint": lambda: _model("sgd", kernel_constraint=_noisy(lambda weight, noise: weight + noise)),
    "a constraint without a generator": lambda: _model("sgd", kernel_constraint=_unseeded),
    "an optimizer": lambda: _model(NoisyMomentum()),
    "a schedule": lambda: _model(keras.optimizers.Adam(Jitter())),
    "a step": lambda: _model(keras.optimizers.SGD(0.05, momentum=0.9), NoisyStep),
    "a regularizer": lambda: _model(
        "adam", kernel_regularizer=_noisy(lambda weight, noise: keras.ops.sum(keras.ops.square(weight + noise)))
    ),
}


def _trained(
    build: Callable[[], keras.Model], dp: tfscale.DataParallel | None, check: str = "auto"
) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    if dp is None:
        model = build()
    else:
        with dp.scope():
            model = dp.prepare(build(), check=check)
    model.fit(_X, _Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return model.get_weights()


def weights_of_programs() -> dict[str, tuple[list[np.ndarray], list[np.ndarray]]]:
    """By program: the weights on one device, and on three replicas."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=8)
    return {name: (_trained(build, None), _trained(build, dp)) for name, build in PROGRAMS.items()}


def refusal(name: str) -> str:
    """The error of a constraint, with the name of its kind."""
    tfscale.simulate_replicas(2)
    try:
        _trained(lambda: _model("sgd", kernel_constraint=REFUSED[name]), tfscale.DataParallel(global_batch=8))
    except tfscale.TfscaleError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def warned_of() -> list[str]:
    """What is said where each replica draws, and nothing is to be refused."""
    tfscale.simulate_replicas(2)
    dp = tfscale.DataParallel(global_batch=8)
    with listening() as said:
        _trained(lambda: _model("sgd", kernel_constraint=_drawn_by_each), dp, "off")
    return [each for each in said if "differ" in each]
