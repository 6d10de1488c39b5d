"""Run in a fresh process: steps with side effects on both sides of what the replicas send."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

import tfscale

X = np.random.default_rng(0).normal(size=(30, 4)).astype("float32")


def _doubled(x: tf.Tensor) -> tf.Tensor:
    """By Python, as metrics of audio and pictures are that exist for NumPy alone."""
    return tf.ensure_shape(tf.numpy_function(lambda a: a * 2, [x], tf.float32), x.shape)


class TwoUpdates(keras.Model):
    """The second half of a step needs what the first one has updated."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = keras.layers.Dense(4), keras.layers.Dense(1)

    def build(self, shape):
        self.first.build(shape)
        self.second.build(shape)

    def call(self, x):
        return self.second(self.first(x))

    def compile(self) -> None:
        super().compile()
        self.optimizers = [keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.1)]

    def train_step(self, x):
        x = _doubled(x)
        with tf.control_dependencies([tf.debugging.assert_greater(tf.reduce_sum(x**2), 0.0)]):
            one = self._update(self.first, self.optimizers[0], lambda: tf.reduce_mean(self.first(x) ** 2))
        y = tf.stop_gradient(_doubled(self.first(x)))
        tf.print("between", tf.reduce_mean(y), output_stream="file:///dev/null")
        with tf.control_dependencies([tf.debugging.assert_greater(tf.reduce_sum(y**2), 0.0)]):
            two = self._update(self.second, self.optimizers[1], lambda: tf.reduce_mean(self.second(y) ** 2))
        return {"one": one, "two": two}

    def _update(self, layer, optimizer, loss_of):
        with tf.GradientTape() as tape:
            loss = loss_of()
        weights = layer.trainable_weights
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss


def _trained(dp: tfscale.DataParallel | None) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    with dp.scope() if dp else tf.device(None):
        model = TwoUpdates()
        model.build((None, 4))
        model.compile()
        if dp:
            dp.prepare(model)
        logs = model.fit(X, batch_size=12, epochs=2, shuffle=False, verbose=0).history
    return [*map(keras.ops.convert_to_numpy, model.weights), np.array(logs["one"]), np.array(logs["two"])]


def differ(replicas: int) -> float:
    """By how much the runs on one device and on replicas differ at most."""
    tfscale.simulate_replicas(replicas)
    alone = _trained(None)
    divided = _trained(tfscale.DataParallel(global_batch=12))
    return max(float(np.max(np.abs(a - b))) for a, b in zip(alone, divided, strict=True))


def order() -> str:
    """What the replicas say that are traced into one graph, each in two places, around a sum."""
    tfscale.simulate_replicas(2)
    dp = tfscale.DataParallel(global_batch=2)
    said: list[tuple[int, str]] = []

    def say(what: str, value: tf.Tensor, replica: int) -> tf.Tensor:
        def note(number: np.ndarray) -> np.ndarray:
            said.append((replica, what))
            return number

        return tf.ensure_shape(tf.numpy_function(note, [value], tf.float32), value.shape)

    @tf.autograph.experimental.do_not_convert
    def step() -> tf.Tensor:
        replica = int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))
        own = say("first", tf.constant(replica + 1.0), replica)
        (total,) = tfscale.loops.all_reduce_sum([own])
        return say("third", say("second", total, replica), replica)

    totals = tf.function(lambda: dp.strategy.experimental_local_results(dp.strategy.run(step)))()
    assert [float(total) for total in totals] == [3.0, 3.0]
    return "; ".join(" ".join(what for by, what in said if by == replica) for replica in range(2))
