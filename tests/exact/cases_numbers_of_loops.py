"""Run in a fresh process: metrics that a loop by hand gives one number of each batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

BATCH = 8
_RANDOM = np.random.default_rng(0)
X, Y = (_RANDOM.normal(size=(17, 3)).astype("float32") for _ in range(2))
Numbers = Callable[[Any, Any, Any], Any]


def _each(x: Any, y: Any) -> Any:
    return tf.reduce_mean(tf.square(x - y), -1)


def _replicas() -> Any:
    return tf.distribute.get_strategy().num_replicas_in_sync


def _rows(x: Any) -> Any:
    return tf.cast(tf.shape(x)[0], tf.float32)


def _of_all(x: Any, y: Any, loss: Any) -> Any:
    context = tf.distribute.get_replica_context()
    part = tf.reduce_sum(_each(x, y)) / BATCH
    return context.all_reduce("SUM", part) if context.num_replicas_in_sync > 1 else part


# What a metric is given: a number, or that and its weight.
EXACT: dict[str, Numbers] = {
    "a loss of Keras": lambda x, y, loss: loss(x, y),
    "a loss of Keras, doubled": lambda x, y, loss: 2.0 * loss(x, y) + loss(x, y),
    "an average": lambda x, y, loss: tf.nn.compute_average_loss(_each(x, y)),
    "an average over the batch": lambda x, y, loss: tf.nn.compute_average_loss(_each(x, y), global_batch_size=BATCH),
    "a mean": lambda x, y, loss: tf.reduce_mean(_each(x, y)),
    "a mean of entries": lambda x, y, loss: keras.ops.mean(keras.ops.square(x - y)),
    "a mean by its rows": lambda x, y, loss: tf.reduce_sum(_each(x, y)) / _rows(x),
    "a mean over replicas": lambda x, y, loss: tf.reduce_mean(_each(x, y)) / _replicas(),
    "a sum": lambda x, y, loss: tf.reduce_sum(_each(x, y)),
    "a sum over the batch": lambda x, y, loss: 0.5 * tf.reduce_sum(_each(x, y)) / BATCH,
    "several parts": lambda x, y, loss: (
        tf.nn.compute_average_loss(_each(x, y)) - 0.1 * tf.reduce_sum(_each(x, y)) / BATCH
    ),
    "a part for weights": lambda x, y, loss: (
        tf.nn.compute_average_loss(_each(x, y)) + tf.nn.scale_regularization_loss(tf.constant([0.25, 0.25]))
    ),
    "hits": lambda x, y, loss: tf.reduce_sum(tf.cast(x > y, tf.float32)),
    "a share of hits": lambda x, y, loss: tf.reduce_mean(tf.cast(tf.argmax(x, 1) == tf.argmax(y, 1), tf.float32)),
    "what is of all": _of_all,
    "a number": lambda x, y, loss: 0.25,
    "rows": lambda x, y, loss: _rows(x),
    "a mean by rows": lambda x, y, loss: (tf.reduce_mean(_each(x, y)), _rows(x)),
    "a loss by rows": lambda x, y, loss: (loss(x, y), _rows(x)),
    "a mean by a number": lambda x, y, loss: (tf.reduce_mean(_each(x, y)), 5.0),
}
REFUSED: dict[str, Numbers] = {
    "a root of a mean": lambda x, y, loss: tf.sqrt(tf.reduce_mean(_each(x, y))),
    "a mean beside a part": lambda x, y, loss: loss(x, y) + tf.reduce_mean(_each(x, y)),
    "a part beside a number": lambda x, y, loss: loss(x, y) + 0.25,
}


def results(replicas: int, shapes: str) -> dict[str, str | list[float]]:
    """By how much the mean and the sum of what each case gives miss those of one device; or what was said.

    Args:
        replicas: Of this process; 1 on workers.
        shapes: "known" where the step is traced for so many rows, "open" for any number.
    """
    if replicas > 1:
        tfscale.simulate_replicas(replicas)
    strategy: Any = tfscale.DataParallel(global_batch=BATCH).strategy
    plain = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
    data = strategy.experimental_distribute_dataset(plain)
    found: dict[str, str | list[float]] = {}
    for name, numbers in (EXACT | REFUSED).items():
        expected = _results(tf.distribute.get_strategy(), plain, numbers, shapes)
        try:
            own = _results(strategy, data, numbers, shapes)
            found[name] = [abs(one - other) for one, other in zip(own, expected, strict=True)]
        except tfscale.TfscaleError as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def _results(strategy: Any, data: Any, numbers: Numbers, shapes: str) -> tuple[float, float]:
    with strategy.scope():
        mean, total, loss = keras.metrics.Mean(), keras.metrics.Sum(), keras.losses.MeanSquaredError()

    def count(x: Any, y: Any) -> None:
        if shapes == "open":
            x, y = (tf.boolean_mask(each, tf.range(tf.shape(each)[0]) < 100) for each in (x, y))
        given = numbers(x, y, loss)
        value, weight = given if isinstance(given, tuple) else (given, None)
        for metric in (mean, total):
            metric.update_state(value, sample_weight=weight)

    step = tf.function(lambda batch: strategy.run(count, args=batch))
    for batch in data:
        step(batch)
    return float(mean.result()), float(total.result())
