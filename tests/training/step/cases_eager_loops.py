"""Loops by hand, and what is said of them; in a process of its own."""

from __future__ import annotations

import logging
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.listening import listening

ROWS = np.linspace(-1.0, 1.0, 48).reshape(12, 4).astype("float32")


def told(num_replicas: int) -> dict[str, int]:
    """How often a loop was said to train eagerly, after each kind of loop."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=6)
    strategy = dp.strategy
    with dp.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)

    def train(rows: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(rows) ** 2) / 6.0
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    def read_and_train(rows: Any) -> None:
        assert np.isfinite(rows.numpy()).all()
        train(rows)

    @tf.function
    def in_graph(rows: Any) -> None:
        strategy.run(train, args=(rows,))

    found = {}
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(ROWS).batch(6))
    loops = {
        "in a graph": in_graph,
        "predicts eagerly": lambda rows: strategy.run(lambda own: model(own), args=(rows,)),
        "trains eagerly": lambda rows: strategy.run(train, args=(rows,)),
        "reads numbers": lambda rows: strategy.run(read_and_train, args=(rows,)),
        "reads numbers again": lambda rows: strategy.run(read_and_train, args=(rows,)),
    }
    with listening(level=logging.WARNING) as said:
        for name, loop in loops.items():
            for rows in data:
                loop(rows)
            found[name] = sum("trains eagerly" in each for each in said)
    return found


def means(num_replicas: int) -> dict[str, tuple[float, float]]:
    """Means over a replica's rows that an eager step takes over all of them, beside those of the rows.

    Args:
        num_replicas: Of this process; 1 on workers.
    """
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=6)
    strategy: Any = dp.strategy
    with dp.scope():
        mean = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN, trainable=False)

    def step(rows: Any) -> Any:
        context: Any = tf.distribute.get_replica_context()
        own = tf.reduce_mean(rows)
        mean.assign(own)
        return context.all_reduce("MEAN", own), context.all_reduce("MEAN", [own, 2.0 * own])[0]

    found = {}
    # Of 5 rows replicas have different numbers, of 1 some have none.
    for count in (6, 5, 1):
        [batch] = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(ROWS[:count]).batch(6))
        one, first = strategy.run(step, args=(batch,))
        expected = float(ROWS[:count].mean())
        for name, value in {"a variable": mean, "one": one, "several": first}.items():
            found[f"{name}, {count} rows"] = float(strategy.experimental_local_results(value)[0]), expected
    return found


def said_of_numbers(num_replicas: int) -> dict[str, str]:
    """What is said of numbers in eager steps, or of those that are alike: an error, a warning, or nothing."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=6)
    strategy: Any = dp.strategy
    with dp.scope():
        counter = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM, trainable=False)
        weight = tf.Variable([2.0, 1.0])
        own = tf.Variable([0.0], trainable=False)
        kept = tf.Variable([0.0, 0.0], trainable=False)
    [batch] = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(ROWS).batch(12))

    @tf.function
    def reduced(op: str, number: Any) -> Any:
        return strategy.reduce(op, strategy.run(number, args=(batch,)), axis=None)

    def several_times(step: Any) -> None:
        for _ in range(8):
            strategy.run(step, args=(batch,))

    ways = {
        "gradients that are kept": lambda: several_times(lambda rows: kept.assign_add(tf.reduce_sum(rows) * weight)),
        "rows": lambda: strategy.run(lambda rows: 2 * rows, args=(batch,)),
        "alike": lambda: strategy.run(lambda rows: tf.reduce_sum(weight), args=(batch,)),
        "counted": lambda: strategy.run(lambda rows: counter.assign_add(1.0), args=(batch,)),
        "mean": lambda: strategy.run(tf.reduce_mean, args=(batch,)),
        "said before": lambda: strategy.run(tf.reduce_mean, args=(batch,)),
        "sum of what is alike": lambda: reduced("SUM", lambda rows: tf.nn.l2_loss(weight)),
        "mean of what is alike": lambda: reduced("MEAN", lambda rows: tf.nn.l2_loss(weight)),
        "sum of a plain number": lambda: reduced("SUM", lambda rows: tf.constant(1.0)),
        # The last one: it leaves replicas that differ.
        "own rows in a variable": lambda: several_times(lambda rows: own.assign([tf.reduce_mean(rows)]) and None),
    }
    found = {}
    for name, way in ways.items():
        with listening(level=logging.WARNING) as said:
            try:
                way()
            except tfscale.ModelError as error:
                said.append(f"ModelError: {error}")
        found[name] = " ".join(said)
    return found
