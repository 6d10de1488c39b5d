"""Cases of steps that keep something in a queue or a table of TensorFlow, which are no variables."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

import tfscale
from tests.training.contract_cases_anywhere import DATA
from tests.training.models import sgd


class _Keeps(keras.Model):
    """Hands the rows and labels of a step to `keep`, and weighs its losses by what that returns."""

    def __init__(self) -> None:
        super().__init__()
        self.net = keras.layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        return self.net(inputs)

    def keep(self, x: Any, y: Any) -> Any:
        raise NotImplementedError

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - self.net(x)) * self.keep(x, y))
        self.optimizer.apply(tape.gradient(loss, self.net.trainable_variables), self.net.trainable_variables)
        return {"loss": loss}


class _Pool(_Keeps):
    """Earlier rows, as a CycleGAN keeps pictures; it holds fewer than two looks would take."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = tf.queue.FIFOQueue(30, ["float32"], [[]])
        self.pool.enqueue_many(tf.zeros(4))

    def keep(self, x: Any, y: Any) -> Any:
        del y
        self.pool.enqueue_many(x[:, 0])
        return tf.abs(self.pool.dequeue_many(tf.shape(x)[0]))[:, None]


class _PoolInCondition(_Pool):
    """The same in a branch."""

    def keep(self, x: Any, y: Any) -> Any:
        return tf.cond(self.optimizer.iterations > 5, lambda: super(_PoolInCondition, self).keep(x, y), lambda: 1.0 * y)


class _CountsInTable(_Keeps):
    """How often each label was seen."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.lookup.experimental.MutableHashTable("int64", "float32", 0.0)

    def keep(self, x: Any, y: Any) -> Any:
        del x
        labels, _, count = tf.unique_with_counts(tf.cast(y[:, 0] > 0, tf.int64))
        self.table.insert(labels, self.table.lookup(labels) + tf.cast(count, tf.float32))
        return tf.reduce_sum(self.table.export()[1])


class _LooksUp(_Keeps):
    """Reads a table that nobody changes."""

    def __init__(self) -> None:
        super().__init__()
        given = tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1], tf.int64), tf.constant([0.5, 2.0]))
        self.table = tf.lookup.StaticHashTable(given, 1.0)

    def keep(self, x: Any, y: Any) -> Any:
        del x
        return tf.reshape(self.table.lookup(tf.cast(y[:, :1] > 0, tf.int64)), (-1, 1))


KEEPS: dict[str, tuple[Any, str]] = {
    "a queue": (_Pool, "a queue ('QueueDequeueManyV2'), a queue ('QueueEnqueueManyV2')"),
    "a queue in a branch": (_PoolInCondition, "a queue ('QueueEnqueueManyV2')"),
    "a table": (_CountsInTable, "a table ('LookupTableInsertV2')"),
}


def told() -> dict[str, str]:
    """By name: the error that a step ends with; nothing of one that trains."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=24)
    found = {}
    for name, build in {**{name: build for name, (build, _) in KEEPS.items()}, "only read": _LooksUp}.items():
        with dp.scope():
            model = dp.prepare(build())
            model.compile(sgd(learning_rate=0.05))
        try:
            model.fit(**DATA, epochs=1, verbose=0, shuffle=False)
            found[name] = ""
        except tfscale.ParityError as error:
            found[name] = str(error)
    return found
