"""Data whose order another process does not have again, killed in mid-epoch. Every function has a process of its own.

The model counts: its weight i is how often example i was trained on, so that a run whose every epoch had every example
once ends with the number of epochs in all of them.
"""

from __future__ import annotations

import os
import random
import signal
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.listening import listening
from tests.recovery.cases_resume import Plug, PlugError, data_parallel

BATCH, EXAMPLES = 8, 44  # 6 steps an epoch, the last one of 4 examples
EPOCHS = 3


def ids(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Batches of what the model takes."""
    known = dataset.apply(tf.data.experimental.assert_cardinality(EXAMPLES))
    return known.map(lambda number: (tf.one_hot(number, EXAMPLES), 0.0)).batch(BATCH)


def numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(EXAMPLES)


def drawn() -> Any:
    order = list(range(EXAMPLES))
    random.SystemRandom().shuffle(order)
    yield from order


def from_generator() -> tf.data.Dataset:
    return tf.data.Dataset.from_generator(drawn, output_signature=tf.TensorSpec((), tf.int64))


def sorted_by_draws() -> tf.data.Dataset:
    keys = numbers().map(lambda number: (tf.random.uniform([]), number)).batch(EXAMPLES)
    return keys.map(lambda key, number: tf.gather(number, tf.argsort(key))).unbatch()


def sampled() -> tf.data.Dataset:
    half = EXAMPLES // 2
    parts = [tf.data.Dataset.range(half), tf.data.Dataset.range(half, EXAMPLES)]
    return tf.data.Dataset.sample_from_datasets(parts, [0.5, 0.5])


def stream(dp: tfscale.DataParallel) -> Any:
    known = from_generator().apply(tf.data.experimental.assert_cardinality(EXAMPLES))
    return dp.dataset(known, map_fn=lambda number: (tf.one_hot(number, EXAMPLES), 0.0))


DATA = {
    "shuffled once, no seed": lambda dp: ids(numbers().shuffle(EXAMPLES, reshuffle_each_iteration=False)),
    "generator that shuffles": lambda dp: ids(from_generator()),
    "map that draws the order": lambda dp: ids(sorted_by_draws()),
    "sampled from two": lambda dp: ids(sampled()),
    "dp.dataset of a generator": stream,
    "shuffled with a seed": lambda dp: ids(numbers().shuffle(EXAMPLES, seed=3)),
    "shuffled with a seed, endless": lambda dp: ids(numbers().shuffle(EXAMPLES, seed=3)).repeat(),
    "shuffled with a seed, cached": lambda dp: ids(numbers().shuffle(EXAMPLES, seed=3).cache()),
    "in order": lambda dp: ids(numbers()),
    "shuffled, no seed": lambda dp: ids(numbers().shuffle(EXAMPLES)),
}


class Orders(keras.callbacks.Callback):
    """Notes which examples each step was made on, by epoch; a restart forgets what was not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[list[list[int]]] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.steps.append([])
        self._before = self.model.get_weights()[0][:, 0]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        now = self.model.get_weights()[0][:, 0]
        self.steps[-1].append(np.flatnonzero(now - self._before).tolist())
        self._before = now


def count(dp: tfscale.DataParallel, data: Any, directory: str | None, plug: int | None, **options: Any) -> Any:
    """Trains; returns how often each example was seen, and the examples of each step of this very `fit`."""
    with dp.scope():
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = dp.prepare(keras.Sequential([keras.Input((EXAMPLES,)), layer]))
        loss = _Count(reduction="sum")
        steps_per_execution = options.pop("steps_per_execution", 1)
        model.compile(keras.optimizers.SGD(1.0), loss, steps_per_execution=steps_per_execution)
    orders = Orders()
    callbacks: list[Any] = [orders, Plug(plug), *options.pop("more", [])]
    if directory is not None:
        callbacks.append(tfscale.callbacks.Recovery(directory, every_steps=1))
    model.fit(data, epochs=EPOCHS, verbose=0, callbacks=callbacks, **options)
    return np.round(model.get_weights()[0][:, 0]).astype(int).tolist(), orders.steps


class _Count(keras.losses.Loss):
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return 1.0 - y_pred[:, 0]


def killed(num_replicas: int, name: str, plugs: tuple[int, ...], directory: str, given: Any) -> dict[str, Any]:
    """A run that is killed before some calls and goes on each time with data made anew."""
    dp = data_parallel(num_replicas, global_batch=BATCH)
    options = dict(given)
    one_go = count(dp, DATA[name](dp), None, None, **options)
    with listening() as said:
        for plug in plugs:
            try:
                count(dp, DATA[name](dp), directory, plug, **options)
            except PlugError:
                continue
            raise AssertionError("it came to its end")
        seen, steps = count(dp, DATA[name](dp), directory, None, **options)
    return {"one go": one_go, "seen": seen, "steps": steps, "said": said}


class Ending(keras.callbacks.Callback):
    """Asks this process to end, in the course of an epoch."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 2:
            os.kill(os.getpid(), signal.SIGTERM)


def ended(directory: str, seed: int, kind: str, ends: bool) -> Any:
    """A job whose data have the order that `seed` gives them; `ends` on SIGTERM, or goes on where another did."""

    def mixed() -> Any:
        order = list(range(EXAMPLES))
        random.Random(seed).shuffle(order)
        yield from order

    dp = data_parallel(1, global_batch=BATCH, seed=1)
    numbers = tf.data.Dataset.from_generator(mixed, output_signature=tf.TensorSpec((), tf.int64))
    if kind == "dp.dataset":
        known = numbers.apply(tf.data.experimental.assert_cardinality(EXAMPLES))
        data = dp.dataset(known, map_fn=lambda number: (tf.one_hot(number, EXAMPLES), 0.0))
    else:
        data = ids(numbers)
    with listening() as said:
        try:
            seen, _ = count(dp, data, directory, None, more=[Ending()] if ends else [])
        except SystemExit as end:
            return end.code, said
    return seen, said
