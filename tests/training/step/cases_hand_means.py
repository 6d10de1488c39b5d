"""Run in a fresh process: means that a loop by hand takes of what its replicas return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.listening import listening
from tfscale.framework.per_replica import warn_of_one_alone

ROWS = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
MEAN, SQUARES = float(ROWS.mean()), float((ROWS**2).mean())


def _step(rows: Any) -> Any:
    return {"mean": tf.reduce_mean(rows), "squares": [tf.reduce_mean(rows**2)], "rows": tf.shape(rows)[0]}


def means(replicas: int) -> dict[str, float]:
    """By how much each way to take the mean misses that of the batch.

    Args:
        replicas: Of this process; 1 on workers.
    """
    if replicas > 1:
        tfscale.simulate_replicas(replicas)
    dp = tfscale.DataParallel(global_batch=12)
    strategy: Any = dp.strategy

    def mean(value: Any, axis: int | None = None) -> float:
        return float(strategy.reduce("MEAN", value, axis=axis))

    @tf.function
    def called(batch: Any) -> Any:
        return strategy.run(_step, args=(batch,))

    @tf.function
    def in_function(batch: Any) -> Any:
        found = strategy.run(_step, args=(batch,))
        return strategy.reduce("MEAN", found["mean"], axis=None), strategy.reduce("MEAN", found["squares"], axis=None)

    @tf.function
    def reduced(batch: Any) -> Any:
        return strategy.reduce("MEAN", called(batch)["mean"], axis=None)

    @tf.function
    def chosen(batch: Any, flag: Any) -> Any:
        if flag:
            found = strategy.run(_step, args=(batch,))["mean"]
        else:
            found = strategy.run(lambda rows: 2 * tf.reduce_mean(rows), args=(batch,))
        return found

    @tf.function
    def repeated(batch: Any) -> Any:
        found = strategy.run(_step, args=(batch,))["mean"]
        for _ in tf.range(3):
            found = strategy.run(_step, args=(batch,))["mean"]
        return found

    @tf.function
    def added(batch: Any) -> Any:
        total = strategy.run(lambda: tf.zeros(()))
        for _ in tf.range(3):
            total = strategy.run(lambda own, rows: own + tf.reduce_mean(rows), args=(total, batch))
        return total

    @tf.function
    def doubled(value: Any) -> Any:
        return strategy.run(lambda own: 2 * own, args=(value,))

    @tf.function
    def of_rows(batch: Any) -> Any:
        return strategy.run(lambda rows: tf.reduce_mean(rows, -1), args=(batch,))

    def summed(batch: Any) -> float:
        return float(strategy.reduce("SUM", called(batch)["rows"], axis=None)) / 8 * MEAN

    ways: dict[str, tuple[Callable[[Any], Any], float]] = {
        "outside of the function": (lambda batch: mean(called(batch)["mean"]), MEAN),
        "in the function": (lambda batch: float(in_function(batch)[0]), MEAN),
        "nested, in the function": (lambda batch: float(in_function(batch)[1][0]), SQUARES),
        "nested": (lambda batch: mean(called(batch)["squares"][0]), SQUARES),
        "in a function around it": (lambda batch: float(reduced(batch)), MEAN),
        "of a condition": (lambda batch: mean(chosen(batch, tf.constant(True))), MEAN),
        "of a loop": (lambda batch: mean(repeated(batch)), MEAN),
        "that a loop adds up": (lambda batch: mean(added(batch)), 3 * MEAN),
        "of no rows": (lambda batch: mean(strategy.run(tf.function(lambda: tf.constant(2.0)))), 2.0),
        "of what became of it": (lambda batch: mean(doubled(called(batch)["mean"])), 2 * MEAN),
        "eagerly": (lambda batch: mean(strategy.run(_step, args=(batch,))["mean"]), MEAN),
        "a function is run": (lambda batch: mean(strategy.run(tf.function(_step), args=(batch,))["mean"]), MEAN),
        "over rows": (lambda batch: mean(of_rows(batch), axis=0), MEAN),
        "a sum of integers": (summed, MEAN),
    }
    (batch,) = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(ROWS).batch(12))
    return {name: abs(way(batch) - expected) for name, (way, expected) in ways.items()}


def of_no_rows(rows: int, replicas: int = 1) -> dict[str, float]:
    """By how much losses of Keras's miss those of a batch that is smaller than the number of replicas.

    Args:
        rows: Of the batch.
        replicas: Of this process; 1 on workers.
    """
    if replicas > 1:
        tfscale.simulate_replicas(replicas)
    strategy: Any = tfscale.DataParallel(global_batch=12).strategy
    loss = keras.losses.MeanSquaredError()

    def step(own: Any) -> Any:
        return loss(tf.zeros_like(own), own)

    @tf.function
    def called(batch: Any) -> Any:
        return strategy.run(step, args=(batch,))

    @tf.function
    def in_function(op: Any, batch: Any) -> Any:
        return strategy.reduce(op, called(batch), axis=None)

    (batch,) = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(ROWS[:rows]).batch(12))
    expected = float((ROWS[:rows] ** 2).mean())
    return {
        "in the function": float(in_function("SUM", batch)) - expected,
        "outside of it": float(strategy.reduce("SUM", called(batch), axis=None)) - expected,
        "in a list": float(strategy.reduce(tf.distribute.ReduceOp.SUM, [called(batch)], axis=None)[0]) - expected,
    }


def on_workers() -> tuple[dict[str, float], list[str]]:
    """As `means`, of workers of one replica; and what was logged."""
    with listening("tfscale.training.step.hand_means") as said:
        return means(1), said


# A number of a replica's rows, and by which of the two all of them are that of one device.
REDUCED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "mean": (tf.reduce_mean, "MEAN"),
    "sum": (tf.reduce_sum, "SUM"),
    "average": (lambda rows: tf.nn.compute_average_loss(tf.reduce_sum(rows, -1)), "SUM"),
    "average over the batch": (lambda rows: tf.reduce_sum(rows) / len(ROWS), "SUM"),
    "mean over replicas": (
        lambda rows: tf.reduce_mean(rows) / tf.distribute.get_strategy().num_replicas_in_sync,
        "SUM",
    ),
    "loss of Keras": (lambda rows: keras.losses.MeanSquaredError()(rows, tf.zeros_like(rows)), "SUM"),
    "loss of Keras, times replicas": (
        lambda rows: (
            keras.losses.MeanSquaredError()(rows, tf.zeros_like(rows))
            * tf.distribute.get_strategy().num_replicas_in_sync
        ),
        "MEAN",
    ),
}


def reduced(replicas: int) -> dict[str, float | str]:
    """By how much what `strategy.reduce` makes of each number misses that of one device; or what was said.

    Args:
        replicas: Of this process; 1 on workers.
    """
    if replicas > 1:
        tfscale.simulate_replicas(replicas)
    strategy: Any = tfscale.DataParallel(global_batch=12).strategy
    [batch] = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(ROWS).batch(12))
    found: dict[str, float | str] = {}
    for name, (number, _) in REDUCED.items():
        expected = float(number(tf.constant(ROWS)))
        for op in ("MEAN", "SUM"):
            for place in ("inside", "outside"):
                try:
                    value = _reduced(strategy, batch, number, op, is_inside=place == "inside")
                    found[f"{name}, {op}, {place}"] = abs(value - expected)
                except tfscale.ModelError as error:
                    found[f"{name}, {op}, {place}"] = str(error)
    return found


def _reduced(strategy: Any, batch: Any, number: Callable[[Any], Any], op: str, *, is_inside: bool) -> float:
    @tf.function
    def run() -> Any:
        values = strategy.run(number, args=(batch,))
        return strategy.reduce(op, values, axis=None) if is_inside else values

    return float(run() if is_inside else strategy.reduce(op, run(), axis=None))


# What a function returns of a replica's rows, and what becomes of one replica's: an error, a warning, or nothing.
ALONE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "mean": (tf.reduce_mean, "error"),
    "part": (lambda rows: tf.nn.compute_average_loss(tf.reduce_sum(rows, -1)), "error"),
    "a number for each row": (lambda rows: tf.reduce_mean(rows, -1), "warning"),
    "alike on all": (lambda rows: tf.constant(2.0), ""),
    "summed": (lambda rows: tf.distribute.get_replica_context().all_reduce("sum", tf.reduce_sum(rows)), ""),
}


def taken_alone(replicas: int) -> dict[str, str]:
    """What is said of one replica's result, whichever way it is taken.

    Args:
        replicas: Of this process; 1 on workers.
    """
    if replicas > 1:
        tfscale.simulate_replicas(replicas)
    strategy: Any = tfscale.DataParallel(global_batch=12).strategy
    [batch] = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(ROWS).batch(12))
    ways: dict[str, Callable[[Any], Any]] = {
        "local results": lambda value: strategy.experimental_local_results(value)[0],
        "last": lambda value: strategy.experimental_local_results(value)[-1],
        "values": lambda value: value.values[0],
        # These are of all replicas of the process.
        "listed": lambda value: [2 * each for each in strategy.experimental_local_results(value)],
        "put together": lambda value: tf.concat(_flat(strategy.experimental_local_results(value)), 0),
        "sliced": lambda value: tf.concat(_flat(strategy.experimental_local_results(value)[:]), 0),
    }
    found = {}
    for name, (number, _) in ALONE.items():
        for way, take in ways.items() if replicas > 1 else [("local results", ways["local results"])]:
            warn_of_one_alone.cache_clear()

            @tf.function
            def run(number: Callable[[Any], Any] = number) -> Any:
                return strategy.run(number, args=(batch,))

            @tf.function
            def run_and_take(number: Callable[[Any], Any] = number, take: Callable[[Any], Any] = take) -> Any:
                return take(strategy.run(number, args=(batch,)))

            found[f"{name}, {way}, inside"] = _said_of(run_and_take)
            found[f"{name}, {way}, outside"] = _said_of(lambda run=run, take=take: take(run()))
    return found


# Ways in which a script reads a number, or goes on with it.
READ: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "int": int,
    "numpy": lambda value: value.numpy(),
    "asarray": np.asarray,
    "mean of a list": lambda value: np.mean([value]),
    "isnan": np.isnan,
    "format": lambda value: f"{value:.3f}",
    "shape": lambda value: value.shape,
    "added": lambda value: value + 1.0,
    "added to": lambda value: sum([value]),
    "added to a tensor": lambda value: tf.ones(()) + value,
    "divided": lambda value: value / 2,
    "compared": lambda value: value < 3,
    "asked": bool,
    "converted": tf.convert_to_tensor,
    "reduced": tf.reduce_mean,
    "stacked": lambda value: tf.stack([value, value]),
    "keras.ops": keras.ops.mean,
    "a metric": lambda value: keras.metrics.Mean().update_state(value),
    "a variable": lambda value: tf.Variable(0.0).assign_add(value),
}


def read_on_worker() -> dict[str, str]:
    """What is said, on a worker of one replica, where what a function returns of its rows is read; or what is read."""
    strategy: Any = tfscale.DataParallel(global_batch=12).strategy
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(ROWS).batch(8))

    def step(rows: Any) -> Any:
        return {name: number(rows) for name, (number, _) in ALONE.items() if "row" not in name}

    @tf.function
    def called(batch: Any) -> Any:
        return strategy.run(step, args=(batch,))

    @tf.function
    def read_inside(batch: Any, name: str, way: str) -> Any:
        READ[way](strategy.run(step, args=(batch,))[name])

    @tf.function
    def goes_on(data: Any, name: str) -> Any:
        last = 0.0
        for batch in data:
            last = strategy.run(step, args=(batch,))[name]
        return last

    @tf.function
    def in_replica(batch: Any, name: str) -> Any:
        value = strategy.run(step, args=(batch,))[name]
        total = strategy.run(lambda own: own * 2.0, args=(value,)), strategy.run(lambda: tf.add(value, value))
        return tf.nest.map_structure(strategy.experimental_local_results, total)

    batch, found = next(iter(data)), {}
    for name in step(tf.constant(ROWS)):
        for way, read in READ.items():
            found[f"{name}, {way}"] = _said_of(lambda read=read, name=name: read(called(batch)[name]))
        found[f"{name}, inside"] = _said_of(lambda name=name: read_inside(batch, name, "divided"))
        found[f"{name}, goes on"] = _said_of(lambda name=name: goes_on(data, name))
        found[f"{name}, in a replica"] = _said_of(lambda name=name: in_replica(batch, name))
    return found


def _flat(values: Any) -> Any:
    return [tf.reshape(each, [-1]) for each in values]


def _said_of(run: Callable[[], Any]) -> str:
    with listening("tfscale.framework.per_replica") as said:
        try:
            run()
        except tfscale.ModelError as error:
            return f"error: {error}"
    return f"warning: {said[0]}" if said else ""
