"""Training with compressed gradients, beside the same in NumPy. Every function runs in a process of its own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.linear_regression import (
    EPOCHS,
    FEATURES,
    GLOBAL_BATCH,
    OUTPUTS,
    RATE,
    ROWS,
    TARGETS,
    PowerSgdByHand,
    gradients_of_replicas,
)
from tfscale import CommunicationError
from tfscale.gradients.sending import traffic_of

COMPRESSIONS = {
    "none": lambda: "none",
    "bf16": lambda: "bf16",
    "fp16": lambda: "fp16",
    "bf16 with feedback": lambda: tfscale.ErrorFeedback("bf16"),
    "PowerSGD": lambda: tfscale.PowerSGD(rank=1),
}


class TwoSteps(keras.Sequential):
    """An own training step, with an optimizer that is given a part of the variables."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


def train(num_replicas: int, name: str, kind: str, directory: str = "") -> dict[str, Any]:
    """Linear regression without bias, rate constant: what is applied in a step can be read from the weights."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    keras.utils.set_random_seed(0)
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, network=tfscale.Network(compression=COMPRESSIONS[name]()))
    with dp.scope():
        optimizer: Any = keras.optimizers.SGD(RATE, gradient_accumulation_steps=2 if kind == "accumulation" else None)
        if kind == "loss scale":
            # The first steps overflow, in fp16 earlier; the growth that follows changes the scale again.
            scale = 2.0**20 if name == "fp16" else 2.0**127
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=scale, dynamic_growth_steps=2)
        dense = keras.layers.Dense(OUTPUTS, use_bias=False, kernel_initializer="zeros")
        model = dp.prepare((TwoSteps if kind == "own step" else keras.Sequential)([keras.Input((FEATURES,)), dense]))
        metrics = [] if kind == "own step" else ["mae"]
        model.compile(optimizer, "mse", metrics=metrics, steps_per_execution=2 if kind == "several steps" else 1)
    logs = Logs()
    arguments = {"shuffle": False, "verbose": 0, "batch_size": GLOBAL_BATCH, "callbacks": [logs]}
    # Twice, because the state must survive the end of `fit`.
    for epoch in range(EPOCHS):
        model.fit(ROWS, TARGETS, initial_epoch=epoch, epochs=epoch + 1, **arguments)
    if directory:
        model.save(Path(directory, f"{name}.keras"))
    return {
        "kernel": model.get_weights()[0],
        "logs": logs.seen,
        "traffic": traffic_of(model.optimizer),
        "text": str(dp),
        "variables": len(model.variables) + len(model.optimizer.variables),
    }


class Logs(keras.callbacks.Callback):
    """What each batch logged."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[dict[str, float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch
        self.seen.append({name: float(value) for name, value in (logs or {}).items()})


def expected_kernel(num_replicas: int = 1, first_q: np.ndarray | None = None) -> np.ndarray:
    """Gradient descent on the same batches in float64; with PowerSGD as in the paper when told its first Q."""
    kernel = np.zeros((FEATURES, OUTPUTS))
    by_hand = None if first_q is None else PowerSgdByHand(num_replicas, first_q)
    for _, first in itertools.product(range(EPOCHS), range(0, len(ROWS), GLOBAL_BATCH)):
        x, y = (rows[first : first + GLOBAL_BATCH].astype("float64") for rows in (ROWS, TARGETS))
        parts = gradients_of_replicas(x, y, kernel, num_replicas)
        kernel -= RATE * (sum(parts) if by_hand is None else by_hand.sum(parts))
    return kernel


def refusals() -> list[str]:
    """What cannot be: an optimizer that is not known in time, and AdaScale on approximate gradients."""
    tfscale.simulate_replicas(2)
    texts = []
    network = tfscale.Network(compression=tfscale.PowerSGD())
    dp = tfscale.DataParallel(per_replica_batch=8, recipe=tfscale.Recipe(rule="adascale"), network=network)
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
        model.compile(dp.optimizer(keras.optimizers.SGD(0.1)), "mse")
    texts.append(_refusal(model))
    with dp.scope():
        late = LateOptimizer([keras.Input((20,)), keras.layers.Dense(20)])
        late.compile(None, "mse")
        late.own_optimizer = keras.optimizers.SGD(0.1)
        texts.append(_refusal(dp.prepare(late), columns=20))
    return texts


class LateOptimizer(keras.Sequential):
    """An optimizer that `fit` does not build."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, _ = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(x))
        self.own_optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def _refusal(model: keras.Model, columns: int = 2) -> str:
    try:
        model.fit(np.ones((16, columns)), np.ones((16, 1)), verbose=0)
    except CommunicationError as error:
        return str(error)
    return ""
