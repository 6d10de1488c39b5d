"""What replicas draw. Every function here runs in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np

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
