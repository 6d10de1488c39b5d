"""Steps whose code keeps values outside of the model. Every function runs in its own process."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

BATCH = 8
ROWS = np.random.default_rng(0).normal(size=(27, 4)).astype("float32")
LABELS = ROWS[:, :1] - ROWS[:, 1:2]

STEPS = 0
COUNTS = {"steps": 0.0}
SEEN: list[int] = []
TENSORS: list[Any] = []
GENERATOR = np.random.default_rng(1)
CYCLE = itertools.cycle([0.0, 1.0, 2.0])
# Made where TensorFlow has its replicas.
NUMBERS: Any = None


class Settings:
    steps = 0


class Meter:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def update(self) -> int:
        self.count += 1
        return self.count


METER = Meter()


def by_global() -> float:
    global STEPS
    STEPS += 1
    return STEPS


def by_dict() -> float:
    COUNTS["steps"] += 1.0
    return COUNTS["steps"]


def by_list() -> float:
    SEEN.append(1)
    return len(SEEN)


def by_class() -> float:
    Settings.steps += 1
    return Settings.steps


def by_object() -> float:
    return METER.update()


def by_default(seen: list[int] = []) -> float:  # noqa: B006
    seen.append(1)
    return len(seen)


def by_attribute() -> float:
    by_attribute.count = getattr(by_attribute, "count", 0) + 1  # type: ignore[attr-defined]
    return float(by_attribute.count)  # type: ignore[attr-defined]


def by_closure() -> Callable[[], float]:
    """Makes the function."""
    count = 0

    def counted() -> float:
        nonlocal count
        count += 1
        return count

    return counted


COUNTERS: dict[str, Callable[[], float]] = {
    **{each.__name__: each for each in (by_global, by_dict, by_list, by_class, by_object, by_default, by_attribute)},
    "by_closure": by_closure(),
    "drawn by NumPy": lambda: np.random.beta(0.4, 0.4),
    "drawn by Python": random.random,
    "drawn by a generator": lambda: float(GENERATOR.beta(0.4, 0.4)),
}
ITERATORS: dict[str, Callable[[], Any]] = {
    "a cycle": lambda: next(CYCLE),
    "a data set": lambda: tf.cast(next(NUMBERS), tf.float32),
}


@contextlib.contextmanager
def from_the_start() -> Iterator[None]:
    """With all of them as they are when this module is imported."""
    global STEPS
    vars(by_attribute).clear()
    STEPS, COUNTS["steps"], Settings.steps, METER.count = 0, 0.0, 0, 0
    SEEN.clear()
    by_default.__defaults__[0].clear()  # type: ignore[index]
    COUNTERS["by_closure"].__closure__[0].cell_contents = 0  # type: ignore[index]
    GENERATOR.bit_generator.state = np.random.default_rng(1).bit_generator.state
    keras.utils.set_random_seed(1)
    yield


class Weighed(keras.Model):
    """Its loss is weighed by what a function says, from a step on."""

    def __init__(self, weigh: Callable[[], float], **options: Any) -> None:
        super().__init__(**options)
        self.weigh = weigh

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y)) * (1.0 + self.weigh())
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class Late(Weighed):
    """Adds what lets rows meet, from the fifth step on."""

    def __init__(self, **options: Any) -> None:
        super().__init__(by_object, **options)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = tf.reduce_mean(tf.square(predicted - y))
            if self.weigh() > 4:
                loss += tf.reduce_mean(tf.square(predicted - tf.reduce_mean(predicted)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def _trained(dp: Any, kind: Callable[..., keras.Model], eager: bool) -> tuple[list[Any], list[float]]:
    with from_the_start():
        with contextlib.nullcontext() if dp is None else dp.scope():
            inputs = keras.Input((4,))
            model = kind(inputs=inputs, outputs=keras.layers.Dense(1)(inputs))
            model.compile(keras.optimizers.SGD(0.01), run_eagerly=eager)
            if dp is not None:
                dp.prepare(model)
        model.fit(ROWS, LABELS, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return model.get_weights(), [STEPS, COUNTS["steps"], Settings.steps, METER.count, len(SEEN), np.random.random()]


def equal(eager: bool) -> dict[str, tuple[Any, Any]]:
    """By name: what three replicas train, and one device; and what is counted in the end."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=BATCH)
    return {
        name: tuple(_trained(each, functools.partial(Weighed, weigh), eager) for each in (dp, None))
        for name, weigh in COUNTERS.items()
    }


def refused() -> dict[str, tuple[str, int]]:
    """By name: the error, and how many steps were made before it."""
    global NUMBERS
    tfscale.simulate_replicas(3)
    NUMBERS = iter(tf.data.Dataset.range(1000))
    dp = tfscale.DataParallel(global_batch=BATCH)
    kinds: dict[str, Any] = {name: functools.partial(Weighed, weigh) for name, weigh in ITERATORS.items()}
    found = {}
    for name, kind in {**kinds, "late": Late}.items():
        with dp.scope():
            inputs = keras.Input((4,))
            model = dp.prepare(kind(inputs=inputs, outputs=keras.layers.Dense(1)(inputs)))
            model.compile(keras.optimizers.SGD(0.01), run_eagerly=True)
        try:
            model.fit(ROWS, LABELS, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
            found[name] = "", -1
        except tfscale.ParityError as error:
            found[name] = str(error), int(model.optimizer.iterations)
    return found


def loops(eager: bool) -> dict[str, Any]:
    """By name: what a function of `strategy.run` leaves on three replicas, and how often; or the error."""
    global NUMBERS
    tfscale.simulate_replicas(3)
    NUMBERS = iter(tf.data.Dataset.range(1000))
    dp = tfscale.DataParallel(global_batch=12)
    strategy: Any = dp.strategy
    [batch] = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(ROWS[:12]).batch(12))
    with dp.scope():
        keras.utils.set_random_seed(2)
        queue = tf.queue.FIFOQueue(90, ["float32"], [[]])
        optimizer, weight = keras.optimizers.SGD(0.1), keras.Variable(1.0)
        optimizer.build([weight])

    def noting(rows: Any) -> Any:
        SEEN.append(float(rows[0, 0]) if eager else 1)
        return tf.reduce_sum(rows)

    def keeping(rows: Any) -> Any:
        TENSORS.append(tf.reduce_sum(rows))
        return tf.reduce_sum(rows)

    def queued(rows: Any) -> Any:
        queue.enqueue_many(rows[:, 0])
        return tf.reduce_sum(queue.dequeue_many(tf.shape(rows)[0]))

    def bent_late(rows: Any) -> Any:
        loss = tf.reduce_sum(rows) / 12.0 * weight.value
        loss = tf.square(loss) if METER.update() > 1 else loss
        optimizer.apply([loss * weight.value], [weight])
        return loss

    def counting(weigh: Callable[[], float]) -> Callable[[Any], Any]:
        return lambda rows: tf.reduce_sum(rows) * weigh()

    functions: dict[str, Any] = {name: counting(weigh) for name, weigh in COUNTERS.items()}
    functions |= {name: counting(weigh) for name, weigh in ITERATORS.items()}
    found: dict[str, Any] = {}
    for name, function in {**functions, "notes": noting, "keeps": keeping, "queue": queued, "late": bent_late}.items():
        run = functools.partial(strategy.run, function, args=(batch,))
        with from_the_start():
            try:
                totals = [
                    float(strategy.reduce("SUM", run() if eager else tf.function(run)(), axis=None)) for _ in "ab"
                ]
                found[name] = totals[0] / ROWS[:12].sum(), [STEPS, COUNTS["steps"], METER.count, len(SEEN)]
            except tfscale.ModelError as error:
                found[name] = str(error)
    return found
