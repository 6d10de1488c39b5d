"""Training with double buffering, beside the same in NumPy. Every function runs in a process of its own."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
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
from tfscale.gradients.sending import traffic_of

MOMENTUM = 0.9
# Each row takes one row of the kernel: what an embedding does.
PLACES = np.random.default_rng(2).integers(0, FEATURES, size=24)
# Too large for its gradient to be multiplied by a loss scale.
OVERFLOWING_STEP, HUGE = 1, 3e37
CLIPNORM, DECAY, AVERAGE, RATE_DECAY = 1.0, 0.1, 0.5, 0.9
# In its second epoch, with four steps in the last save.
STOP_AFTER = 5


class OwnStep(keras.Sequential):
    """An own training step, which looks at what its forward pass has to wait for."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        waits = _waits_for_a_collective(y_pred)
        if waits is not None:
            WAITED_FOR.append(waits)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


WAITED_FOR: list[bool] = []


def _waits_for_a_collective(tensor: tf.Tensor) -> bool | None:
    """Whether anything before `tensor` is a collective, or the condition in which what waits is sent.

    None where nothing was sent before the forward pass, as in the steps that are only looked at.
    """
    sent = {op.name for op in tensor.graph.get_operations() if op.type in ("If", "StatelessIf", "CollectiveReduceV2")}
    if not sent:
        return None
    found, left = set(), [tensor.op]
    while left:
        op = left.pop()
        if op.name not in found:
            found.add(op.name)
            left += [*(each.op for each in op.inputs), *op.control_inputs]
    return bool(found & sent)


class Seen(keras.callbacks.Callback):
    """What each batch logged, and the updates that were made when each epoch ended."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.updates: list[int] = []
        self._stop_after = stop_after

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch
        self.losses.append(float(logs["loss"]))
        if len(self.losses) == self._stop_after:
            raise KeyboardInterrupt

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self.updates.append(int(keras.ops.convert_to_numpy(self.model.optimizer.iterations)))


COMPRESSIONS: dict[str, Callable[[], Any]] = {
    "bf16": lambda: "bf16",
    "PowerSGD": lambda: tfscale.PowerSGD(rank=1),
    "PowerSGD, loss scale": lambda: tfscale.PowerSGD(rank=1),
}


def _prepared(
    kind: str, num_replicas: int, global_batch: int = GLOBAL_BATCH
) -> tuple[tfscale.DataParallel, keras.Model]:
    if num_replicas > 1 and len(tf.config.get_visible_devices("CPU")) == 1:
        tfscale.simulate_replicas(num_replicas)
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(kind if kind.startswith("mixed") else "float32")
    dp = tfscale.DataParallel(
        global_batch=global_batch,
        network=tfscale.Network(compression=COMPRESSIONS.get(kind, lambda: "none")(), double_buffering=True),
        batch_norm="synchronized",
        micro_batch=2 if kind == "micro-steps" else None,
        steps_per_execution="always" if kind == "steps chosen" else None,
    )
    with dp.scope():
        model = dp.prepare(_layers(kind))
        model.compile(
            _optimizer(kind),
            "mse",
            steps_per_execution=2 if kind == "several steps" else 1,
            jit_compile=kind == "XLA",
            run_eagerly=kind == "eager",
        )
    return dp, model


def _layers(kind: str) -> keras.Model:
    if kind == "sparse":
        return keras.Sequential([keras.Input(()), keras.layers.Embedding(FEATURES, OUTPUTS, "zeros")])
    dense = keras.layers.Dense(OUTPUTS, use_bias=False, kernel_initializer="zeros")
    if kind == "batch norm":
        return keras.Sequential([keras.Input((FEATURES,)), keras.layers.BatchNormalization(momentum=0.5), dense])
    cls = OwnStep if kind == "own step" else keras.Sequential
    return cls([keras.Input((FEATURES,)), dense])


def _optimizer(kind: str) -> Any:
    if kind == "everything":
        rate = keras.optimizers.schedules.ExponentialDecay(RATE, 1, RATE_DECAY)
        averaged = {"use_ema": True, "ema_momentum": AVERAGE}
        return keras.optimizers.SGD(rate, momentum=MOMENTUM, global_clipnorm=CLIPNORM, weight_decay=DECAY, **averaged)
    optimizer = keras.optimizers.SGD(RATE, momentum=MOMENTUM)
    if kind in ("overflow", "PowerSGD, loss scale"):
        # Doubled every second update.
        return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1024.0, dynamic_growth_steps=2)
    return optimizer


def train(num_replicas: int, kind: str, directory: str = "") -> dict[str, Any]:
    """Linear regression without bias: what each step has applied can be read from the weights."""
    dp, model = _prepared(kind, num_replicas)
    rows = ROWS.copy()
    if kind == "overflow":
        rows[OVERFLOWING_STEP * GLOBAL_BATCH] = HUGE
    inputs = PLACES if kind == "sparse" else rows
    WAITED_FOR.clear()
    seen = Seen()
    history = model.fit(
        inputs,
        TARGETS,
        batch_size=GLOBAL_BATCH,
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
        callbacks=[seen],
        validation_data=None if kind == "overflow" else (inputs, TARGETS),
    )
    if directory:
        model.save(Path(directory, f"{num_replicas}.keras"))
    optimizer = model.optimizer
    return {
        "kernel": model.get_weights()[0],
        "weights": model.get_weights(),
        "losses": seen.losses,
        "updates": seen.updates,
        "validated": history.history.get("val_loss"),
        "waited": list(WAITED_FOR),
        "traffic": traffic_of(optimizer),
        "text": str(dp),
        "variables": len(model.variables) + len(optimizer.variables),
    }


def train_all(kinds: tuple[str, ...]) -> dict[str, Any]:
    """On workers: one replica each."""
    return {kind: train(1, kind) for kind in kinds}


def interrupted(num_replicas: int) -> np.ndarray:
    """The kernel after a `fit` that stops in its second step, and another one of an epoch."""
    _, model = _prepared("interrupted", num_replicas)
    arguments: dict[str, Any] = {"batch_size": GLOBAL_BATCH, "shuffle": False, "verbose": 0}
    try:
        model.fit(ROWS, TARGETS, **arguments, callbacks=[Seen(stop_after=2)])
    except KeyboardInterrupt:
        model.fit(ROWS, TARGETS, **arguments)
    return model.get_weights()[0]


def recovered(
    num_replicas: int, directory: str, stop_after: int | None = None, global_batch: int = GLOBAL_BATCH
) -> dict[str, Any]:
    """A `fit` that saves before every step, and stops, or goes on where another stopped."""
    if stop_after is None:
        # What another process has stopped may be continued more than once.
        directory = shutil.copytree(directory, f"{directory}-{num_replicas}-{global_batch}")
    dp, model = _prepared("recovered", num_replicas, global_batch)
    data = dp.dataset((ROWS, TARGETS))
    recovery = tfscale.callbacks.Recovery(directory, every_steps=1)
    seen = Seen(stop_after)
    try:
        model.fit(data, epochs=EPOCHS, verbose=0, callbacks=[seen, recovery])
    except KeyboardInterrupt:
        return {"stopped": len(seen.losses)}
    return {"kernel": model.get_weights()[0], "losses": seen.losses, "updates": seen.updates}


def on_batches(num_replicas: int) -> np.ndarray:
    """The kernel after `train_on_batch`, which is exact."""
    _, model = _prepared("on batches", num_replicas)
    for first in range(0, len(ROWS), GLOBAL_BATCH):
        model.train_on_batch(ROWS[first : first + GLOBAL_BATCH], TARGETS[first : first + GLOBAL_BATCH])
    return model.get_weights()[0]


def without_gradient(num_replicas: int) -> list[np.ndarray]:
    """Weights of two outputs of which one has a loss: a decay, and no gradient, for the other."""
    dp, _ = _prepared("plain", num_replicas)
    with dp.scope():
        x = keras.Input((FEATURES,))
        outputs = [keras.layers.Dense(OUTPUTS, use_bias=False, kernel_initializer="ones")(x) for _ in range(2)]
        model = dp.prepare(keras.Model(x, outputs))
        model.compile(keras.optimizers.SGD(RATE, weight_decay=DECAY), ["mse", None])
    with warnings.catch_warnings():
        # Keras says that one of them has no gradient.
        warnings.simplefilter("ignore", UserWarning)
        model.fit(ROWS, TARGETS, batch_size=GLOBAL_BATCH, verbose=0)
    return model.get_weights()


class Twice(keras.Sequential):
    """Two updates in a step."""

    def train_step(self, data: Any) -> dict[str, Any]:
        for _ in range(2):
            self.update(data)
        return {}

    def update(self, data: Any) -> None:
        x, _ = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(x))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)


class Sometimes(Twice):
    """An update in a condition."""

    def train_step(self, data: Any) -> dict[str, Any]:
        def update() -> tf.Tensor:
            self.update(data)
            return tf.constant(0)

        tf.cond(self.optimizer.iterations % 2 == 0, update, lambda: tf.constant(0))
        return {}


class Unbuilt(Twice):
    """An optimizer that `fit` does not build."""

    def train_step(self, data: Any) -> dict[str, Any]:
        self.update(data)
        return {}

    def update(self, data: Any) -> None:
        x, _ = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(x))
        self.own_optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)


class OwnFit(keras.Sequential):
    """A `fit` that takes no callbacks."""

    def fit(self, x: Any, y: Any, batch_size: int = GLOBAL_BATCH) -> Any:
        return super().fit(x, y, batch_size=batch_size, verbose=0)


def refusals(num_replicas: int) -> dict[str, str]:
    """What cannot be."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    adascale = {"recipe": tfscale.Recipe(reference_batch=2, rule="adascale")}
    made: dict[str, tuple[type[keras.Sequential], dict[str, Any], dict[str, Any]]] = {
        "accumulation": (keras.Sequential, {}, {"gradient_accumulation_steps": 2}),
        "twice": (Twice, {}, {}),
    }
    if num_replicas > 1:
        made |= {
            "AdaScale": (keras.Sequential, adascale, {}),
            "sometimes": (Sometimes, {}, {}),
            "not built": (Unbuilt, {}, {}),
            "own fit": (OwnFit, {}, {}),
        }
    return {name: _refusal(*how) for name, how in made.items()}


def _refusal(cls: type[keras.Sequential], arguments: dict[str, Any], of_optimizer: dict[str, Any]) -> str:
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, network=tfscale.Network(double_buffering=True), **arguments)
    with dp.scope():
        model = dp.prepare(cls([keras.Input((FEATURES,)), keras.layers.Dense(OUTPUTS)]))
        optimizer = dp.optimizer(keras.optimizers.SGD(0.1, **of_optimizer))
        model.compile(None if cls is Unbuilt else optimizer, "mse")
        if cls is Unbuilt:
            model.own_optimizer = optimizer
    try:
        model.fit(ROWS, TARGETS)
    except tfscale.CommunicationError as error:
        return str(error)
    return ""


def expected(
    *,
    kind: str = "plain",
    delayed: bool = True,
    replicas: int = 1,
    first_q: np.ndarray | None = None,
    stop_after: int | None = None,
    exact_from: int | None = None,
    epochs: int = EPOCHS,
) -> dict[str, Any]:
    """The same in float64.

    Args:
        kind: "plain", "sparse", "overflow", "everything", or "PowerSGD" (which depends on the replicas).
        delayed: False for steps with their own gradients.
        replicas: For PowerSGD.
        first_q: With which PowerSGD begins.
        stop_after: Steps after which what waits is forgotten, and the epoch begins anew.
        exact_from: From which step on one replica goes on, which applies at once what has waited.
        epochs: How many.
    """
    run = _Run(kind, replicas, first_q)
    losses, validated, step = [], [], 0
    for _ in range(epochs):
        waiting, first = None, 0
        while first < len(ROWS):
            if exact_from is not None and step == exact_from and waiting is not None:
                run.update(waiting)
                waiting = None
            losses.append(run.loss(slice(first, first + GLOBAL_BATCH)))
            parts = run.gradients(first)
            if not delayed or (exact_from is not None and step >= exact_from):
                run.update(parts)
            else:
                if waiting is not None:
                    run.update(waiting)
                waiting = parts
            step, first = step + 1, first + GLOBAL_BATCH
            if step == stop_after:
                waiting, first = None, 0
        if waiting is not None:
            run.update(waiting)
        validated.append(run.loss(slice(None)))
    kernel = run.average if kind == "everything" else run.kernel
    return {"kernel": kernel, "losses": losses, "validated": validated}


class _Run:
    """Weights, and what an optimizer makes of gradients."""

    def __init__(self, kind: str, replicas: int, first_q: np.ndarray | None):
        self._kind = kind
        self._replicas = replicas
        rows = np.eye(FEATURES)[PLACES] if kind == "sparse" else ROWS.astype("float64")
        self._rows, self._targets = rows, TARGETS.astype("float64")
        self.kernel = np.zeros((FEATURES, OUTPUTS))
        self.average: np.ndarray = self.kernel
        self._velocity = np.zeros_like(self.kernel)
        self._power_sgd = None if first_q is None else PowerSgdByHand(replicas, first_q)
        self._updates = 0

    def loss(self, rows: slice) -> float:
        return float(np.mean((self._rows[rows] @ self.kernel - self._targets[rows]) ** 2))

    def gradients(self, first: int) -> list[np.ndarray] | None:
        """Of each replica; None where one is not finite."""
        x, y = (values[first : first + GLOBAL_BATCH] for values in (self._rows, self._targets))
        if self._kind == "overflow" and first == OVERFLOWING_STEP * GLOBAL_BATCH:
            return None
        return gradients_of_replicas(x, y, self.kernel, self._replicas)

    def update(self, parts: list[np.ndarray] | None) -> None:
        if parts is None:
            return
        gradient, rate = sum(parts, np.zeros_like(self.kernel)), RATE
        if self._power_sgd is not None:
            gradient = self._power_sgd.sum(parts)
        if self._kind == "everything":
            rate = RATE * RATE_DECAY**self._updates
            gradient = gradient * min(1.0, CLIPNORM / np.linalg.norm(gradient))
            self.kernel = self.kernel * (1 - DECAY * rate)
        self._velocity = MOMENTUM * self._velocity - rate * gradient
        self.kernel = self.kernel + self._velocity
        self.average = self.kernel if self._updates == 0 else AVERAGE * self.average + (1 - AVERAGE) * self.kernel
        self._updates += 1
