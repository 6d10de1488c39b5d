"""What do the jobs train on? Data of every kind, each with every example once in an epoch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.chaos.schedule import BATCH, EXAMPLES, STEPS

# More than an example is ever seen: the absolute difference has the gradient -1 up to there.
FAR = 1000.0


def arrays() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """All examples, in order."""
    numbers = np.arange(EXAMPLES, dtype="float32")[:, None]
    x = {"number": np.eye(EXAMPLES, dtype="float32"), "noise": np.zeros((EXAMPLES, 1), "float32")}
    return x, {"seen": np.full((EXAMPLES, 1), FAR, "float32"), "learned": np.sin(numbers)}


def _example(number: tf.Tensor) -> Any:
    known = {"number": tf.one_hot(number, EXAMPLES), "noise": tf.zeros([1])}
    return known, {"seen": tf.fill([1], FAR), "learned": tf.sin(tf.cast(number, tf.float32))[None]}


def _noisy(example: Any, seed: tf.Tensor) -> Any:
    known, wanted = example
    return {**known, "noise": tf.random.stateless_normal([1], seed)}, wanted


def _numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(EXAMPLES)


def _batches(numbers: tf.data.Dataset) -> tf.data.Dataset:
    known = numbers.apply(tf.data.experimental.assert_cardinality(EXAMPLES))
    return known.map(_example).batch(BATCH)


def _drawn(seed: int) -> tf.data.Dataset:
    """Numbers in an order that all workers of one start have, and no other start."""
    rng = random.Random(seed)

    def mixed() -> Iterator[int]:
        order = list(range(EXAMPLES))
        rng.shuffle(order)
        yield from order

    found = tf.data.Dataset.from_generator(mixed, output_signature=tf.TensorSpec((), tf.int64))
    return found.apply(tf.data.experimental.assert_cardinality(EXAMPLES))


def _rows(batch: int) -> Any:
    known, wanted = arrays()
    chosen = slice(batch * BATCH, (batch + 1) * BATCH)
    return {name: each[chosen] for name, each in known.items()}, {name: each[chosen] for name, each in wanted.items()}


class _Sequence(keras.utils.PyDataset):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        return _rows(index)


def _endless() -> Iterator[Any]:
    while True:
        for batch in range(STEPS):
            yield _rows(batch)


def make_arguments(dp: tfscale.DataParallel, kind: str, seed: int) -> dict[str, Any]:
    """Returns the arguments of `fit` for data of a kind.

    Args:
        dp: Of the job.
        kind: One of `schedule.DATA`.
        seed: Of this start; what draws an order of its own has another one for another seed.
    """
    once, endless = {}, {"steps_per_epoch": STEPS}
    known, wanted = arrays()
    made: dict[str, Any] = {
        "dp.dataset of arrays": lambda: (dp.dataset(arrays(), map_fn=_noisy, shuffle=True), once),
        "dp.dataset of a stream": lambda: (dp.dataset(_drawn(seed), map_fn=_example), once),
        "tf.data in order": lambda: (_batches(_numbers()), once),
        "tf.data, seeded": lambda: (_batches(_numbers().shuffle(EXAMPLES, seed=3)), once),
        "tf.data, seeded, endless": lambda: (_batches(_numbers().shuffle(EXAMPLES, seed=3)).repeat(), endless),
        "tf.data, new seed each start": lambda: (
            _batches(_numbers().shuffle(EXAMPLES, seed=seed + 1)),
            once,
        ),
        "tf.data, drawn once": lambda: (
            _batches(_numbers().shuffle(EXAMPLES, reshuffle_each_iteration=False)),
            once,
        ),
        "tf.data, generator that draws": lambda: (_batches(_drawn(seed)), once),
        "tf.data, unseeded": lambda: (_batches(_numbers().shuffle(EXAMPLES)), once),
        "arrays in order": lambda: (known, {"y": wanted, "batch_size": BATCH, "shuffle": False}),
        "arrays, shuffled": lambda: (known, {"y": wanted, "batch_size": BATCH}),
        "PyDataset": lambda: (_Sequence(), once),
        "generator": lambda: (_endless(), endless),
    }
    x, others = made[kind]()
    return {"x": x, **others}
