"""Run in a fresh process: loops by hand that assign to variables what their replicas computed.

Of 29 rows in batches of 8, uneven on three replicas. Each case makes its variable and the function for `strategy.run`;
those that are equal say what one replica would leave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

ROWS = np.random.default_rng(0).normal(size=(29, 3)).astype("float32")
BATCH = 8
BATCHES = [ROWS[start : start + BATCH] for start in range(0, len(ROWS), BATCH)]
ON_READ = tf.VariableSynchronization.ON_READ
MEAN, SUM, FIRST = (
    tf.VariableAggregation.MEAN,
    tf.VariableAggregation.SUM,
    tf.VariableAggregation.ONLY_FIRST_REPLICA,
)
Step = Callable[[Any], Any]


def _variable(value: Any = 0.0, **options: Any) -> tf.Variable:
    return tf.Variable(value, **{"trainable": False, **options})


def _all_sum(value: Any) -> Any:
    context = tf.distribute.get_replica_context()
    assert context is not None
    return context.all_reduce("SUM", value)


def _norm_of_gradients(reduce: Callable[[Any], Any]) -> tuple[Any, Step]:
    kernel, norm = tf.Variable(tf.ones(3)), _variable()

    def step(rows: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.linalg.matvec(rows, kernel) ** 2) / BATCH
        norm.assign(tf.norm(reduce(tape.gradient(loss, kernel))))

    return norm, step


def _accumulated(keep: float) -> tuple[Any, Step]:
    kernel, kept = tf.Variable(tf.ones(3)), _variable(tf.zeros(3))

    def step(rows: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.linalg.matvec(rows, kernel) ** 2) / BATCH
        gradient = tape.gradient(loss, kernel)
        kept.assign(keep * kept + gradient) if keep != 1 else kept.assign(kept + gradient)

    return kept, step


def _batch_norm(**options: Any) -> tuple[Any, Step]:
    layer = keras.layers.BatchNormalization(momentum=0.5, **options)
    layer.build((None, 3))
    return layer.moving_mean, lambda rows: layer(rows, training=True)


def _assigns(made: Callable[[], Any], value: Callable[[Any, Any], Any]) -> tuple[Any, Step]:
    variable = made()
    return variable, lambda rows: variable.assign(value(variable, rows))


def _adds(made: Callable[[], Any], value: Callable[[Any], Any]) -> tuple[Any, Step]:
    variable = made()
    return variable, lambda rows: variable.assign_add(value(rows))


def _keras_counter() -> Any:
    return keras.Variable(0.0, trainable=False, aggregation="sum")


def _summed(value: Any = 0.0) -> Any:
    return _variable(value, synchronization=ON_READ, aggregation=SUM)


APART: dict[str, Callable[[], tuple[Any, Step]]] = {
    "a mean of a replica's rows": lambda: _assigns(_variable, lambda old, rows: 0.9 * old + tf.reduce_mean(rows)),
    "averaged where it is read": lambda: _assigns(
        lambda: _variable(synchronization=ON_READ, aggregation=MEAN), lambda old, rows: tf.reduce_max(rows)
    ),
    "of the first replica": lambda: _assigns(
        lambda: _variable(aggregation=FIRST), lambda old, rows: tf.reduce_mean(rows)
    ),
    "the last rows": lambda: _assigns(
        lambda: _variable(tf.zeros((4, 3))), lambda old, rows: tf.concat([rows, old], 0)[:4]
    ),
    "statistics of a layer": _batch_norm,
    "of gradients that are not added up": lambda: _norm_of_gradients(tf.identity),
    "of the shape of a weight, and fading": lambda: _accumulated(0.9),
    "rows are counted": lambda: _adds(_variable, lambda rows: tf.cast(tf.shape(rows)[0], tf.float32)),
    "rows are counted in Python": lambda: _adds(lambda: _variable(0), lambda rows: rows.shape[0]),
    "numbers are counted": lambda: _assigns(lambda: _variable(0), lambda old, rows: old + tf.size(rows)),
    "in a condition": lambda: _assigns(
        _variable, lambda old, rows: tf.cond(old < 5.0, lambda: tf.reduce_sum(rows), lambda: tf.identity(old))
    ),
}
REPEATED: dict[str, Callable[[], tuple[Any, Step]]] = {
    "a counter of Keras that is summed": lambda: _adds(_keras_counter, lambda rows: 1.0 * tf.reduce_sum(rows)),
}
ALIKE: dict[str, Callable[[], tuple[Any, Step]]] = {
    "steps in what is summed": lambda: _adds(_summed, lambda rows: 1.0),
}


def _fading(value: Callable[[Any], Any], keep: float) -> float:
    kept = 0.0
    for rows in BATCHES:
        kept = keep * kept + value(rows)
    return kept


def _gradients(rows: Any) -> Any:
    return 2 * (rows.T @ rows.sum(1)) / BATCH


EQUAL: dict[str, tuple[Callable[[], tuple[Any, Step]], Any]] = {
    "a mean of all rows": (
        lambda: _assigns(_variable, lambda old, rows: 0.9 * old + tf.reduce_mean(tfscale.gather_rows(rows))),
        _fading(np.mean, 0.9),
    ),
    "of gradients that are added up": (
        lambda: _norm_of_gradients(_all_sum),
        np.linalg.norm(_gradients(BATCHES[-1])),
    ),
    "statistics that are synchronised": (
        lambda: _batch_norm(synchronized=True),
        _fading(lambda rows: 0.5 * rows.mean(0), 0.5),
    ),
    "a mean by rows": (
        lambda: _assigns(lambda: _variable(aggregation=MEAN), lambda old, rows: tf.reduce_mean(rows)),
        BATCHES[-1].mean(),
    ),
    "steps": (lambda: _adds(_variable, lambda rows: 1.0), len(BATCHES)),
    "steps by Keras": (lambda: _adds(lambda: keras.Variable(0, trainable=False), lambda rows: 1), len(BATCHES)),
    "a power of a number": (lambda: _assigns(lambda: _variable(1.0), lambda old, rows: 0.5 * old), 0.5 ** len(BATCHES)),
    "rows in what is summed": (
        lambda: _adds(_summed, lambda rows: tf.cast(tf.shape(rows)[0], tf.float32)),
        len(ROWS),
    ),
    "tokens in what is summed": (lambda: _adds(_summed, lambda rows: float(rows.shape[0] * rows.shape[1])), ROWS.size),
    "gradients are kept": (lambda: _accumulated(1), None),
}


def found(names: list[str]) -> dict[str, str | float]:
    """Of each case, the error; or by how much what it leaves is not what one replica does."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=BATCH)
    cases = {**APART, **REPEATED, **ALIKE, **{name: case for name, (case, _) in EQUAL.items()}}
    return {name: _found(dp, cases[name], EQUAL.get(name, (None, None))[1]) for name in names}


def _found(dp: Any, case: Callable[[], tuple[Any, Step]], expected: Any) -> str | float:
    with dp.scope():
        variable, step = case()

    @tf.function
    def call(rows: Any) -> None:
        dp.strategy.run(step, args=(rows,))

    try:
        for rows in dp.strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(ROWS).batch(BATCH)):
            call(rows)
    except tfscale.ModelError as error:
        return f"{variable.name}: {error}"
    return 0.0 if expected is None else float(np.abs(tf.convert_to_tensor(variable).numpy() - expected).max())
