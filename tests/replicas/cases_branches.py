"""Runs in a child process: steps in which something is sent inside of conditions and loops."""

import functools

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.together import Failure
from tfscale.replicas.all_reduce import all_reduce_sum


def _sent(x):
    return all_reduce_sum([tf.reduce_sum(x)])[0]


@functools.cache
def _function():
    return tf.function(_sent)


def _step(name, own):
    """What a replica does with its rows."""
    x, iterations, table = own, _VARIABLES["iterations"], tf.constant([1.0, -1.0])
    if name == "own rows":
        return tf.cond(tf.reduce_sum(x) > 0, lambda: _sent(x), lambda: 0.0)
    if name == "no condition":
        tf.cond(tf.reduce_sum(x) > 0, lambda: x[0, 0], lambda: 0.0)
        return tf.constant(0.0)
    if name == "own number of rows":
        return tf.cond(tf.reduce_sum(tf.cast(x > 0, tf.int32)) > 1, lambda: _sent(x), lambda: 0.0)
    if name == "own rows inside of a variable's condition":
        outer = lambda: tf.cond(tf.reduce_sum(x) > 0, lambda: _sent(x), lambda: 1.0)  # noqa: E731
        return tf.cond(iterations > 0, outer, lambda: 0.0)
    if name == "own rows, as one condition gave them":
        flag = tf.cond(iterations > 0, lambda: tf.reduce_sum(x), lambda: 0.0)
        return tf.cond(flag > 0, lambda: _sent(x), lambda: 0.0)
    if name == "own rows in a function":
        return tf.function(lambda own: tf.cond(own[0, 0] > 0, lambda: _sent(own), lambda: 0.0))(x)
    if name == "a function in own rows' condition":
        return tf.cond(x[0, 0] > 0, lambda: tf.function(_sent)(x), lambda: 0.0)
    if name == "one of several by own rows":
        index = tf.cast(x[0, 0] > 0, tf.int32)
        return tf.switch_case(index, [lambda: 0.0, lambda: _sent(x), lambda: 1.0])
    if name == "a loop":
        return tf.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, t + _sent(x)), (0, 0.0))[1]
    if name == "a loop in a condition that all decide alike":
        loop = lambda: tf.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, t + _sent(x)), (0, 0.0))[1]  # noqa: E731
        return tf.cond(iterations > 0, loop, lambda: 0.0)
    if name == "by a loop over own rows":
        total = tf.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, t + x[0, 0]), (0, 0.0))[1]
        return tf.cond(total > 0, lambda: _sent(x), lambda: 0.0)
    if name == "by a loop as long as own rows":
        turns = tf.while_loop(lambda i: tf.cast(i, tf.float32) < x[0, 0], lambda i: (i + 1,), (0,))[0]
        return tf.cond(turns > 2, lambda: _sent(x), lambda: 0.0)
    if name == "random numbers":
        return tf.cond(tf.random.uniform([]) > 0.5, lambda: _sent(x), lambda: 0.0)
    if name == "a metric's state":
        return tf.cond(_VARIABLES["metric"].count > 3.0, lambda: _sent(x), lambda: 0.0)
    if name == "an eager function's rows":
        return tf.cond(tf.numpy_function(lambda v: v.sum() > 0, [x], tf.bool), lambda: _sent(x), lambda: 0.0)
    if name == "a branch of Python by the rows":
        return _sent(x) if x.shape[0] > 2 else tf.constant(0.0)
    if name == "one more of Python by the rows":
        return _sent(x) + _sent(x) if x.shape[0] > 2 else _sent(x)
    # From here on, what all replicas decide alike.
    if name == "a random number of Keras":
        return tf.cond(keras.random.uniform([]) > 0.5, lambda: _sent(x), lambda: 0.0)
    if name == "a variable":
        return tf.cond(iterations % 2 == 0, lambda: _sent(x), lambda: 0.0)
    if name == "a number":
        return tf.cond(table[0] > 0, lambda: _sent(x), lambda: 0.0)
    if name == "by a loop over numbers":
        turns = tf.while_loop(lambda i: i < 3, lambda i: (i + 1,), (0,))[0]
        return tf.cond(turns > 2, lambda: _sent(x), lambda: 0.0)
    if name == "a sum of all":
        return tf.cond(_sent(x) > 0, lambda: _sent(x), lambda: 0.0)
    if name == "a function":
        return _function()(x)
    if name == "the rows of all":
        rows = tfscale.gather_rows(x)
        return tf.cond(tf.reduce_sum(rows) > 0, lambda: _sent(x), lambda: 0.0)
    if name == "a loop without":
        return _sent(tf.while_loop(lambda i, _: i < tf.shape(x)[0], lambda i, t: (i + 1, t + x[i]), (0, x[0]))[1])
    raise AssertionError(name)


_VARIABLES = {}


def run(names):
    """The error of each, or None for a step that ran."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(devices=3, per_replica_batch=2)
    strategy = dp.strategy
    with dp.scope():
        _VARIABLES["iterations"] = tf.Variable(0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
        _VARIABLES["metric"] = keras.metrics.Mean()
    rows = np.arange(14, dtype="float32").reshape(7, 2) + 1
    return {name: _outcome(strategy, name, rows) for name in names}


def _outcome(strategy, name, rows):
    batch = next(iter(strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(rows))))

    @tf.function(autograph=False)
    def steps(own, turns):
        # A loop around all replicas may send what it likes.
        def turn(i, _):
            results = strategy.run(lambda x: _step(name, x), args=(own,))
            return i + 1, strategy.experimental_local_results(results)[0]

        tf.while_loop(lambda i, _: i < turns, turn, (0, 0.0), parallel_iterations=1)
        return strategy.run(lambda x: _step(name, x), args=(own,))

    try:
        steps(batch, tf.constant(2))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


class Sometimes(keras.Model):
    """Applies its optimizer only where its rows say so."""

    def __init__(self, decide):
        super().__init__(name="sometimes")
        self.dense = keras.layers.Dense(1)
        self.decide = decide

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x))
        gradients = tape.gradient(loss, self.trainable_variables)

        def apply():
            self.optimizer.apply(gradients, self.trainable_variables)
            return True

        tf.cond(self.decide(self, x), apply, lambda: False)
        return {"own_loss": loss}


def fit(by, check, replicas=3, eager=False):
    """The error of `fit`, or its losses."""
    decide = {
        "own rows": lambda model, x: tf.reduce_sum(x) > 0,
        "iterations": lambda model, x: model.optimizer.iterations % 2 == 0,
        "all rows": lambda model, x: tf.reduce_sum(tfscale.gather_rows(x)) > 0,
    }[by]
    tfscale.simulate_replicas(replicas)
    dp = tfscale.DataParallel(devices=replicas, per_replica_batch=12 // replicas)
    keras.utils.set_random_seed(3)
    with dp.scope():
        model = Sometimes(decide)
        model.compile(keras.optimizers.SGD(0.05), "mse", run_eagerly=eager)
    dp.prepare(model, check=check)
    x = np.random.default_rng(0).normal(size=(24, 3)).astype("float32")
    try:
        return model.fit(x, x[:, :1], batch_size=12, epochs=3, shuffle=False, verbose=0).history["own_loss"]
    except tfscale.errors.ModelError as error:
        return Failure(error)
