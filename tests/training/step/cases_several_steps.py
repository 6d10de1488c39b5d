"""Steps that need the gradients, or the rows, of all replicas in the middle, several of them in one call.

The last batch of an epoch is smaller, and is in one call with others.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.check.cases_parts import among_rows, largest_difference

BATCH = 8
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(44, 4)).astype("float32")
Y = 3 * _RNG.normal(size=(44, 2)).astype("float32")


class Clipped(keras.Model):
    """Clips by hand: gradients are summed where they are read."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
        gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 0.5)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"norm": norm}


class ClippedInBranch(Clipped):
    """The same, with a layer that is called in a branch of a condition."""

    def call(self, x: Any, training: bool = False) -> Any:
        del training
        first, second = self.layers[1:]
        rows = first(x)
        return tf.cond(tf.reduce_sum(x) > 0, lambda: second(rows), lambda: second(2.0 * rows))


class GathersRows(keras.Model):
    """Has the rows of all replicas, with their gradient."""

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
        del x, y
        rows = tfscale.gather_rows(y_pred)
        return tf.reduce_mean(tf.reduce_logsumexp(tf.matmul(rows, rows, transpose_b=True), axis=1))


def _perceptron(kind: type[keras.Model]) -> keras.Model:
    inputs = keras.Input((4,))
    return kind(inputs, keras.layers.Dense(2)(keras.layers.Dense(6, activation="tanh")(inputs)))


def _of_tokens(kind: type[keras.Model]) -> keras.Model:
    inputs = keras.Input((4,))
    tokens = keras.ops.cast(keras.ops.floor(keras.ops.abs(inputs) * 3), "int32")
    return kind(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(keras.layers.Embedding(16, 3)(tokens))))


def _of_lengths(kind: type[keras.Model]) -> keras.Model:
    inputs = keras.Input((None,))
    rows = keras.layers.Conv1D(2, 2, padding="same")(keras.ops.expand_dims(inputs, -1))
    return kind(inputs, rows)


def _in_arrays() -> dict[str, Any]:
    return {"x": X, "y": Y, "batch_size": BATCH}


def _of_other_lengths() -> dict[str, Any]:
    """Each batch is as long as its longest row."""
    rows = tf.data.Dataset.range(44).map(lambda row: tf.range(1 + row % 7 + row // 8, dtype=tf.float32) / 10)
    return {"x": rows.padded_batch(BATCH).map(lambda batch: (batch, batch))}


class Program(NamedTuple):
    """What is trained."""

    kind: type[keras.Model]
    build: Callable[[type[keras.Model]], keras.Model] = _perceptron
    compiled: Mapping[str, Any] = types.MappingProxyType({})
    data: Callable[[], dict[str, Any]] = _in_arrays


PROGRAMS = {
    "gradients summed where they are read": Program(Clipped),
    "a layer in a branch": Program(ClippedInBranch),
    "rows that meet in a loss": Program(keras.Model, compiled={"loss": among_rows}),
    "rows that are gathered": Program(GathersRows),
    "rows that are gathered, of other lengths": Program(GathersRows, _of_lengths, data=_of_other_lengths),
    "rows of a table": Program(keras.Model, _of_tokens, {"loss": "mse"}),
    # Four batches: the second call has one, and what it returns is the log.
    "steps in eager mode": Program(
        Clipped,
        compiled={"run_eagerly": True},
        data=lambda: {"x": X[:28], "y": Y[:28], "batch_size": BATCH},
    ),
}


def _fit(program: Program, around: Callable[[keras.Model], keras.Model], steps: int) -> tuple[Any, ...]:
    keras.utils.set_random_seed(1)
    model = around(program.build(program.kind))
    model.compile(optimizer=keras.optimizers.SGD(0.1), steps_per_execution=steps, **program.compiled)
    history = model.fit(**program.data(), epochs=5, shuffle=False, verbose=0).history
    return history, model.get_weights()


def several_steps(num_replicas: int) -> dict[str, float]:
    """By name: how far three steps a call on replicas are from plain Keras's, one by one."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH)
    found = {}
    for name, program in PROGRAMS.items():
        expected = _fit(program, lambda model: model, 1)
        with dp.scope():
            found[name] = largest_difference(_fit(program, dp.prepare, 3), expected)
    return found


def loop_by_hand(num_replicas: int) -> float:
    """How far an epoch in one function of the user's own, with a table of rows, is from one replica's."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)

    def trained(batches: Any, run: Callable[..., Any]) -> list[Any]:
        keras.utils.set_random_seed(1)
        model, optimizer = _of_tokens(keras.Model), keras.optimizers.Adam(0.02, epsilon=1e-3)
        optimizer.build(model.trainable_variables)

        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(y - model(x, training=True))) / BATCH
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        @tf.function
        def epoch(batches: Any) -> Any:
            total = 0.0
            for batch in batches:
                total += run(step, batch)
            return total

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "To make it possible to preserve tf.data options", UserWarning)
            losses = [float(epoch(batches)) for _ in range(3)]
        return [losses, model.get_weights()]

    expected = trained(data, lambda step, batch: step(*batch))
    strategy = dp.strategy
    with dp.scope():
        ours = trained(
            strategy.experimental_distribute_dataset(data),
            lambda step, batch: strategy.reduce("SUM", strategy.run(step, args=batch), axis=None),
        )
    return largest_difference(ours, expected)
