"""AdaScale on replicas, against the same algorithm in NumPy. Every function runs in a process of its own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tfscale.gradients.adascale import OwnMoments, estimate, own_moments
from tfscale.loops import apply_reduced
from tfscale.replicas.share import Share

REFERENCE_BATCH, GLOBAL_BATCH, EPOCHS, RATE, MOMENTUM, DECAY_STEPS = 4, 10, 2, 0.05, 0.9, 40
# Two full batches of 10, which 3 replicas share unevenly, and a last one of 4.
ROWS = np.random.default_rng(0).normal(size=(24, 5)).astype("float32")
TARGETS = (ROWS @ np.arange(1, 6) + np.random.default_rng(1).normal(size=24)).astype("float32")[:, None]


class OwnStep(keras.Sequential):
    """A training step as a user writes it."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.optimizer.scale_loss(self.compute_loss(x, y, self(x, training=True)))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {}


def train(num_replicas: int, kind: str, directory: str) -> dict[str, Any]:
    """Linear regression with AdaScale on a cosine schedule."""
    dp = _data_parallel(num_replicas)
    rate = RATE if kind == "constant rate" else keras.optimizers.schedules.CosineDecay(RATE, DECAY_STEPS)
    optimizer: Any = keras.optimizers.SGD(rate, momentum=MOMENTUM)
    if kind == "loss scale":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1024.0)
    cls = OwnStep if kind == "own step" else keras.Sequential
    with dp.scope():
        layers = [keras.Input((5,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
        model = dp.prepare(cls(layers))
        model.compile(dp.optimizer(optimizer), "mse")
    history, report = Measured(), tfscale.callbacks.ScalingReport(dp.plan)
    model.fit(ROWS, TARGETS, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[history, report])
    model.save(Path(directory, f"{kind}.keras"))
    return {
        "kernel": model.get_weights()[0],
        "gains": history.gains,
        "position": history.position,
        "text": str(dp),
        "report": report.rows[-1],
    }


class Measured(keras.callbacks.Callback):
    """Notes the gain of every step, and the position after the last."""

    def __init__(self) -> None:
        super().__init__()
        self.gains: list[float] = []
        self.position = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        self.gains.append(float(keras.ops.convert_to_numpy(optimizer.gain)))
        self.position = float(keras.ops.convert_to_numpy(optimizer.position))


def _data_parallel(num_replicas: int, rule: str = "adascale") -> tfscale.DataParallel:
    if num_replicas > 1 and len(tf.config.get_visible_devices("CPU")) == 1:
        tfscale.simulate_replicas(num_replicas)
    return tfscale.DataParallel(global_batch=GLOBAL_BATCH, recipe=tfscale.Recipe(REFERENCE_BATCH, rule))


def expected(num_replicas: int, *, constant: bool) -> dict[str, Any]:
    """The same run in float64 NumPy, after the paper."""
    kernel, velocity, variance, squared_mean, position = np.zeros((5, 1)), np.zeros((5, 1)), 0.0, 0.0, 0.0
    gains = []
    for _ in range(EPOCHS):
        for start in range(0, len(ROWS), GLOBAL_BATCH):
            x, y = (a[start : start + GLOBAL_BATCH].astype("float64") for a in (ROWS, TARGETS))
            n = len(x)
            edges = [i * n // num_replicas for i in range(num_replicas + 1)]
            parts = [slice(a, b) for a, b in itertools.pairwise(edges) if b > a]

            def gradient(x, y, kernel=kernel):
                return 2 * x.T @ (x @ kernel - y) / len(x)

            whole = gradient(x, y)
            spread = sum((p.stop - p.start) / n * np.sum((gradient(x[p], y[p]) - whole) ** 2) for p in parts)
            noise = spread / (len(parts) - 1)
            memory = 1 - n / REFERENCE_BATCH / 1000
            variance = memory * variance + (1 - memory) * noise * n
            squared_mean = memory * squared_mean + (1 - memory) * (np.sum(whole**2) - noise)
            signal = max(squared_mean, 0.0)
            gain = (variance / REFERENCE_BATCH + signal) / (variance / n + signal)
            rate = RATE if constant else RATE * (1 + np.cos(np.pi * min(position, DECAY_STEPS) / DECAY_STEPS)) / 2
            velocity = MOMENTUM * velocity - gain * rate * whole
            kernel = kernel + velocity
            position += gain
            gains.append(gain)
    return {"kernel": kernel, "gains": gains, "position": position}


def load(directory: str) -> dict[str, Any]:
    """What a file holds of the optimizer."""
    optimizer = keras.models.load_model(Path(directory, "cosine.keras")).optimizer
    return {
        "class": type(optimizer).__name__,
        "reference_batch": optimizer.reference_batch,
        "position": float(optimizer.position.numpy()),
        "gain": float(optimizer.gain.numpy()),
    }


def estimates(shards: tuple[int, ...], draws: int) -> dict[str, Any]:
    """Many estimates from gradients whose mean and variance are known."""
    random = np.random.default_rng(0)
    mean, deviations = np.array([0.5, -1.0, 0.25]), np.array([1.0, 2.0, 0.5])
    n = sum(shards)

    @tf.function
    def estimated(gradients: list[tf.Tensor]) -> tf.Tensor:
        moments = []
        for rows, gradient in zip(shards, gradients, strict=True):
            share = Share(tf.constant(float(rows)), tf.constant(float(n)), rows / n, tf.constant(0), len(shards))
            moments.append(own_moments([gradient], share))
        total = OwnMoments(*(tf.add_n(list(values)) for values in zip(*moments, strict=True)))
        return tf.stack(estimate(total, tf.reduce_sum(tf.add_n(gradients) ** 2), float(n)))

    found = []
    for _ in range(draws):
        own = []
        for rows in shards:
            g = random.normal(mean, deviations, size=(rows, 3)).mean(axis=0) if rows else np.zeros(3)
            own.append(tf.constant(g * rows / n, tf.float32))
        found.append(estimated(own).numpy().tolist())
    return {"found": np.array(found), "variance": np.sum(deviations**2), "squared_mean": np.sum(mean**2)}


def sparse_squares() -> tuple[float, float]:
    """|g|^2 of an embedding's gradient, in which a row occurs twice, and of the same as a dense tensor."""
    slices = tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), tf.constant([2, 0, 2]), (4, 2))
    share = Share(tf.constant(1.0), tf.constant(1.0), 1.0, tf.constant(0), 1)
    return tuple(float(own_moments([g], share).squares) for g in (slices, tf.convert_to_tensor(slices)))


def reduced_elsewhere() -> None:
    """A training loop of one's own, which reduces by itself."""
    optimizer = tfscale.AdaScaleSGD(0.1, reference_batch=4)
    apply_reduced(optimizer, [tf.ones(())], [keras.Variable(0.0)])


def rederive(kind: str) -> None:
    """What has to be refused."""
    sgd = keras.optimizers.SGD
    dp = _data_parallel(1 if kind == "one replica" else 2)
    optimizers = {
        "one replica": lambda: sgd(0.1),
        "Adam": keras.optimizers.Adam,
        "accumulation": lambda: sgd(0.1, gradient_accumulation_steps=2),
        "twice": lambda: tfscale.AdaScaleSGD(0.1, reference_batch=4),
    }
    dp.optimizer(optimizers[kind]())
