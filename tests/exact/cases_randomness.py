"""What replicas draw. Every function here runs in a process of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

ROWS, WIDTH = 4, 500


def _dropout() -> keras.layers.Layer:
    return keras.layers.Dropout(0.5, seed=7)


def _noise() -> keras.layers.Layer:
    return keras.layers.GaussianNoise(1.0, seed=7)


def _flip() -> keras.layers.Layer:
    return keras.layers.RandomFlip("horizontal", seed=7)


LAYERS = {"Dropout": _dropout, "GaussianNoise": _noise, "RandomFlip": _flip}


class AlwaysRandom(keras.layers.Layer):
    """Draws in `predict` too, so that every replica's numbers come back."""

    def __init__(self, inner: keras.layers.Layer) -> None:
        super().__init__()
        self.inner = inner

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs, training=True)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


def _model(name: str) -> keras.Model:
    shape = (2, WIDTH // 2, 1) if name == "RandomFlip" else (WIDTH,)
    return keras.Sequential([keras.Input(shape), AlwaysRandom(LAYERS[name]())])


def _inputs(name: str, rows: int) -> np.ndarray:
    if name == "RandomFlip":
        return np.tile(np.arange(WIDTH, dtype="float32").reshape(1, 2, -1, 1), (rows, 1, 1, 1))
    return np.ones((rows, WIDTH), "float32")


def draws(name: str, num_replicas: int, num_calls: int, rows: int = ROWS) -> np.ndarray:
    """What a layer gives for equal rows: `[num_calls, num_replicas, rows, ...]`."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=rows * num_replicas)
    with dp.scope():
        model = dp.prepare(_model(name))
    x = _inputs(name, rows * num_replicas)
    calls = [model.predict(x, batch_size=len(x), verbose=0) for _ in range(num_calls)]
    return np.array(calls).reshape(num_calls, num_replicas, rows, -1)


def plain_draws(name: str, num_calls: int) -> np.ndarray:
    """The same on one device without tfscale: `[num_calls, ROWS, ...]`."""
    model = _model(name)
    x = _inputs(name, ROWS)
    calls = [model.predict(x, batch_size=ROWS, verbose=0) for _ in range(num_calls)]
    return np.array(calls).reshape(num_calls, ROWS, -1)


def draws_after_load(directory: str, num_replicas: int) -> dict[str, Any]:
    """Draws of one model, and of others that took over its file or its state in between."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=ROWS * num_replicas)
    x = _inputs("Dropout", ROWS * num_replicas)
    with dp.scope():
        first, from_file, from_state = (dp.prepare(_model("Dropout")) for _ in range(3))

    def draw(model: keras.Model) -> np.ndarray:
        return model.predict(x, batch_size=len(x), verbose=0).reshape(num_replicas, ROWS, -1)

    def state_of(model: keras.Model) -> keras.Variable:
        return model.layers[0].inner.seed_generator.state

    found = {"first": draw(first)}
    first.save_weights(Path(directory, "model.weights.h5"))
    found["copies"] = np.array([value.numpy() for value in state_of(first).value.values])
    saved = state_of(first).numpy()
    found["second"] = draw(first)
    from_file.load_weights(Path(directory, "model.weights.h5"))
    found["from file"] = draw(from_file)
    state_of(from_state).assign(saved)
    found["from state"] = draw(from_state)
    return found


def fit_twice(num_replicas: int) -> list[list[np.ndarray]]:
    """The weights of two trainings with dropout from the same seed."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=12)
    runs = []
    for _ in range(2):
        keras.utils.set_random_seed(3)
        with dp.scope():
            model = dp.prepare(
                keras.Sequential(
                    [
                        keras.Input((8,)),
                        keras.layers.Dense(16, activation="tanh"),
                        keras.layers.Dropout(0.5),
                        keras.layers.Dense(1),
                    ]
                )
            )
            model.compile("sgd", "mse")
        x = np.random.default_rng(0).normal(size=(60, 8)).astype("float32")
        model.fit(x, x[:, :1], epochs=2, verbose=0, shuffle=False)
        runs.append(model.get_weights())
    return runs


@tf.function
def _in_a_function() -> tf.Tensor:
    return tf.random.normal(())


def _in_a_loop(draw: Callable[[], tf.Tensor]) -> tf.Tensor:
    return tf.map_fn(lambda _: draw(), tf.zeros(2))


DRAWING: dict[str, Callable[[Any, Any], tf.Tensor]] = {
    "keras.random without a seed": lambda generator, rows: keras.random.normal((rows,)),
    "a generator that no layer holds": lambda generator, rows: keras.random.normal((rows,), seed=generator),
    "keras.random in a loop": lambda generator, rows: _in_a_loop(lambda: keras.random.normal((), seed=generator)),
    "tf.random": lambda generator, rows: tf.random.normal(()),
    "tf.random in a loop": lambda generator, rows: _in_a_loop(lambda: tf.random.normal(())),
    "tf.random in a function": lambda generator, rows: _in_a_function(),
}


class Drawing(keras.Sequential):
    """Draws before its update and after it; in a loop, TensorFlow itself draws the same there with a seed."""

    draw: Callable[[Any], tf.Tensor]
    found: dict[str, list[float]]

    def keep(self, where: str, x: Any) -> None:
        drawn = self.draw(tf.shape(x)[0])
        tf.numpy_function(lambda values: self.found[where].extend(np.ravel(values).tolist()), [drawn], [])

    def train_step(self, data: Any) -> Any:
        self.keep("before the update", data[0])
        logs = super().train_step(data)
        self.keep("after the update", data[0])
        return logs


def all_draws(seed: int | None = None) -> dict[tuple[str, str], list[float]]:
    """What the steps of this process draw for themselves, by what they draw with, and where."""
    if tfscale.resolve_cluster().num_workers == 1:
        tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=6)
    if seed is not None:
        keras.utils.set_random_seed(seed)
    with dp.scope():
        generator = keras.random.SeedGenerator(3)
        # A loop by hand that makes one finds it made.
        keras.random.normal(())
    found: dict[tuple[str, str], list[float]] = {}
    for name, draw in DRAWING.items():
        with dp.scope():
            model = dp.prepare(Drawing([keras.Input((2,)), keras.layers.Dense(1)]), check="off")
            model.compile("sgd", "mse")
        drawn: dict[str, list[float]] = {where: [] for where in ("before the update", "after the update", "by hand")}
        # Keras would wrap what it is given.
        object.__setattr__(model, "found", drawn)
        model.draw = functools.partial(draw, generator)
        model.fit(np.ones((12, 2)), np.ones((12, 1)), batch_size=6, verbose=0)

        @tf.function
        def step(model: Drawing = model) -> None:
            dp.strategy.run(model.keep, args=("by hand", tf.zeros((tf.random.uniform((), 2, 3, tf.int32), 2))))

        step()
        found |= {(name, where): values for where, values in drawn.items()}
    return found
