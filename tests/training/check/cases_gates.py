"""Cases of steps that take another branch later, and of steps that do not run on one replica."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.check.cases_step_check import Messages, _data_parallel
from tests.training.contract_cases_anywhere import DATA
from tests.training.models import sgd
from tfscale.training.check.gates import compared_with

TABLE = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 1.0], "float32")
# By what a step decides whether it mixes rows: in its first one no replica does.
GATES: dict[str, Any] = {
    "step two": lambda model: tf.equal(model.steps, 2),
    "the fourth of five": lambda model: tf.equal(model.steps % 5, 3),
    "from 4 to 9": lambda model: (model.steps >= 4) & (model.steps < 10),
    "the second tenth": lambda model: tf.equal(model.steps // 10, 2),
    "updates of the optimizer": lambda model: tf.equal(model.optimizer.iterations, 5),
    "epochs of a callback": lambda model: (model.epoch >= 3.0) & (model.epoch < 4.0),
    "a case": lambda model: tf.switch_case(model.steps % 3, [lambda: False, lambda: False, lambda: True]),
    "a count that begins with one": lambda model: tf.equal(model.from_one % 4, 3),
    "a count down": lambda model: tf.equal(model.down, 0),
    "one of several counts": lambda model: tf.equal(model.counts[1], 6),
    "a table": lambda model: tf.gather(tf.constant([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]), model.steps) > 0,
    "a place of a table": lambda model: tf.constant([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0])[model.steps] > 0,
    "a table of Keras's": lambda model: keras.ops.take(TABLE, model.optimizer.iterations) > 0,
    "a flag": lambda model: model.flag,
}


class MixesInSomeBatches(keras.Model):
    """Each row counts with another one of its batch, in the batches that a draw picks, by as much as a draw says."""

    def __init__(self, often: float, **options: Any) -> None:
        super().__init__(**options)
        self.seeds = keras.random.SeedGenerator(5)
        self.often = often

    def compute_loss(self, x: Any = None, y: Any = None, *_: Any, **__: Any) -> Any:
        is_picked = keras.random.uniform((), seed=self.seeds) < self.often
        share = tf.where(is_picked, keras.random.uniform((), seed=self.seeds), 1.0)
        mixed = self(share * x + (1 - share) * tf.reverse(x, [0]))
        return tf.reduce_mean(tf.square(mixed - share * y - (1 - share) * tf.reverse(y, [0])))


def evaluated_at_random(often: float) -> tuple[list[float], list[str]]:
    """The losses of evaluations of such a model on two replicas, and what was said."""
    dp, messages = _data_parallel(), Messages()
    with dp.scope():
        inputs = keras.Input((5,))
        model = dp.prepare(MixesInSomeBatches(often, inputs=inputs, outputs=keras.layers.Dense(1)(inputs)))
        model.compile(sgd())
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(48, 5)).astype("float32"), rng.normal(size=(48, 1)).astype("float32")
    losses = [model.evaluate(x, y, batch_size=24, verbose=0) for _ in range(4)]
    return losses, [each for each in messages.kept if "mixes the rows" in each]


class MixesLater(keras.Model):
    """A step that mixes rows, and updates before and after, at a value of a counter."""

    def __init__(self, gate: str) -> None:
        super().__init__()
        self.net = keras.layers.Dense(2)
        self.gate = GATES[gate]
        self.steps = tf.Variable(0, trainable=False)
        self.epoch = tf.Variable(0.0, trainable=False)
        self.from_one = tf.Variable(1, trainable=False)
        self.down = tf.Variable(3, trainable=False)
        self.counts = tf.Variable([0, 1], trainable=False)
        self.flag = tf.Variable(False, trainable=False)

    def call(self, inputs: Any) -> Any:
        return self.net(inputs)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self.net(x)
            loss = tf.reduce_mean(tf.square(y - outputs))
            loss += tf.cond(
                self.gate(self),
                lambda: tf.reduce_sum(tf.square(tf.reduce_mean(tf.stop_gradient(outputs) * outputs, axis=0))),
                lambda: 0.0,
            )
        variables = self.net.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        self.steps.assign_add(1)
        self.from_one.assign_add(1)
        self.down.assign_sub(1)
        self.counts.assign_add([1, 1])
        return {"loss": loss}


def gated() -> dict[str, str]:
    """By gate: what is said of a step that mixes rows later, before anything is updated."""
    messages, dp = Messages(), _data_parallel()
    found = {}
    for gate in GATES:
        messages.kept.clear()
        with dp.scope():
            model = dp.prepare(MixesLater(gate))
            model.compile(sgd(learning_rate=0.05))
        try:
            model.fit(DATA["x"][:24], DATA["y"][:24], batch_size=24, epochs=1, verbose=0, shuffle=False)
            found[gate] = "\n".join(messages.kept)
        except tfscale.ParityError as error:
            found[gate] = str(error)
    return found


class CountsLater(keras.Model):
    """A step whose second loss mixes rows, and weighs nothing, or next to nothing, as it begins."""

    def __init__(self, begins: list[float] | float) -> None:
        super().__init__()
        self.net = keras.layers.Dense(2)
        self.weights_of_losses = tf.Variable(begins, trainable=False)

    def call(self, inputs: Any) -> Any:
        return self.net(inputs)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self.net(x)
            weight = tf.reshape(self.weights_of_losses, [-1])[-1]
            loss = tf.reduce_mean(tf.square(y - outputs))
            loss += weight * tf.reduce_sum(tf.square(tf.reduce_mean(outputs, axis=0)))
        variables = self.net.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


def weighted_later() -> dict[str, str]:
    """By what its weights begin with: what is said of a loss that mixes rows later, before anything is updated."""
    messages, dp = Messages(), _data_parallel()
    found = {}
    for begins in (0.0, [1.0, 0.0], [1.0, 0.5, 0.0], 1e-9):
        messages.kept.clear()
        with dp.scope():
            model = dp.prepare(CountsLater(begins))
            model.compile(sgd(learning_rate=0.05))
        model.fit(DATA["x"][:24], DATA["y"][:24], batch_size=24, epochs=1, verbose=0, shuffle=False)
        found[str(begins)] = "\n".join(messages.kept)
    return found


def values_compared() -> dict[str, list[float]]:
    """By gate: what a graph compares with the variables of a model."""
    found = {}
    for name in GATES:
        model = MixesLater(name)
        model.compile(sgd())
        model.optimizer.build([keras.Variable(1.0)])
        step = tf.function(lambda model=model: tf.cond(model.gate(model), lambda: 1, lambda: 2))
        variables = [model.steps, model.epoch, model.optimizer.iterations.value, model.from_one, model.down]
        compared = compared_with(step.get_concrete_function(), [[each] for each in (*variables, model.counts)])
        found[name] = [value for values in compared.values() for value in values]
    return found


class OneNumberOfRows(keras.layers.Layer):
    """Groups rows by a number that is written out: that of one replica's share."""

    def call(self, inputs: Any) -> Any:
        rows = inputs.shape[0] or tf.shape(inputs)[0]
        if isinstance(rows, int) and rows > 12:
            raise ValueError("this layer takes 12 rows")
        return inputs


def runs_on_no_replica(mode: str) -> tuple[str, list[str], int]:
    """The error, what is said and the updates of a step that runs on shares only."""
    messages, dp = Messages(), _data_parallel()
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((8,)), OneNumberOfRows(), keras.layers.Dense(2)]), check=mode)
        model.compile(sgd(learning_rate=0.05), loss="mse", run_eagerly=True)
    error = ""
    try:
        model.fit(DATA["x"][:24], DATA["y"][:24], batch_size=24, verbose=0, shuffle=False)
    except tfscale.TfscaleError as raised:
        error = f"{type(raised).__name__}: {raised}"
    updates = int(model.optimizer.iterations.numpy()) if model.optimizer.built else 0
    return error, [each for each in messages.kept if "could not be checked" in each], updates


class Refuses(keras.layers.Layer):
    """Ends in an error of tfscale's own where all rows are."""

    def call(self, inputs: Any) -> Any:
        if (inputs.shape[0] or 0) > 12:
            raise tfscale.ModelError("a cause of its own")
        return inputs


def refuses_by_name() -> str:
    """The kind of error where a step ends in one of tfscale's own on one replica."""
    dp = _data_parallel()
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((8,)), Refuses(), keras.layers.Dense(2)]))
        model.compile(sgd(learning_rate=0.05), loss="mse", run_eagerly=True)
    try:
        model.fit(DATA["x"][:24], DATA["y"][:24], batch_size=24, verbose=0, shuffle=False)
    except tfscale.TfscaleError as raised:
        return f"{type(raised).__name__}: {raised}"
    return ""


class SampledSoftmax(keras.Model):
    """Words of which each is told from a few others that are drawn."""

    def __init__(self, *, in_full: bool) -> None:
        super().__init__()
        self.words = keras.layers.Embedding(50, 8)
        self.kernel = self.add_weight(name="kernel", shape=(50, 8), initializer="glorot_uniform")
        self.bias = self.add_weight(name="bias", shape=(50,), initializer="zeros")
        self.in_full = in_full

    def call(self, inputs: Any) -> Any:
        return self.words(inputs)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            losses = tf.nn.sampled_softmax_loss(self.kernel.value, self.bias.value, y[:, None], self(x), 10, 50)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        if self.in_full:
            gradients = [tf.convert_to_tensor(each) for each in gradients]
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"sampled_loss": loss}


def sampled(optimizer: str, in_full: bool) -> tuple[str, list[str]]:
    """The error, and what is said, of a step that draws classes."""
    messages, dp = Messages(), _data_parallel()
    words = DATA["x"][:24, 0].astype("float32").argsort()
    with dp.scope():
        model = dp.prepare(SampledSoftmax(in_full=in_full))
        model.compile(keras.optimizers.get(optimizer))
    try:
        model.fit(words, words[::-1].copy().astype("int64"), batch_size=24, verbose=0, shuffle=False)
    except tfscale.ParityError as error:
        return str(error), messages.kept
    return "", [each for each in messages.kept if "could not be checked" in each]


class KeepsTwelveRows(MixesLater):
    """A step that can be traced with twelve rows or more."""

    def __init__(self) -> None:
        super().__init__("step two")
        self.kept = tf.Variable(tf.zeros((12, 2)), trainable=False)

    def train_step(self, data: Any) -> dict[str, Any]:
        self.kept.assign(self.net(data[0])[:12])
        return super().train_step(data)


def fails_on_one_worker() -> str:
    """What is said of a step that can be traced on one worker's share, and not on the other's."""
    messages, dp = Messages(), _data_parallel()
    with dp.scope():
        model = dp.prepare(KeepsTwelveRows())
        model.compile(sgd(learning_rate=0.05))
    try:
        model.fit(DATA["x"][:23], DATA["y"][:23], verbose=0, shuffle=False)
    except tfscale.ParityError as error:
        return str(error)
    return "\n".join(each for each in messages.kept if "step" in each)


class NeedsRows(MixesLater):
    """A step that is traced with any number of rows, and fails with fewer than it needs."""

    def __init__(self, needed: int) -> None:
        super().__init__("step two")
        self.needed = needed

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        x = tf.ensure_shape(tf.numpy_function(self.take, [x], tf.float32), x.shape)
        return super().train_step((x, y))

    def take(self, rows: Any) -> Any:
        if len(rows) < self.needed:
            raise ValueError("too few")
        return rows


def fails_while_it_runs(needed: int) -> str:
    """The error of a worker, of a step that fails on fewer rows than it needs, of the 12 and 11 of the workers."""
    dp = _data_parallel()
    with dp.scope():
        model = dp.prepare(NeedsRows(needed))
        model.compile(sgd(learning_rate=0.05))
    try:
        model.fit(DATA["x"][:23], DATA["y"][:23], verbose=0, shuffle=False)
    except tfscale.TfscaleError as error:
        return f"{type(error).__name__}: {error}"
    return ""


class KeepsTheLeast(keras.layers.Layer):
    """Keeps the least number of a batch, which is on one worker."""

    def build(self, shape: Any) -> None:
        del shape
        self.least = self.add_weight(name="least", shape=(), initializer="zeros", trainable=False)

    def call(self, inputs: Any) -> Any:
        self.least.assign(tf.reduce_min(inputs))
        return inputs * tf.stop_gradient(1.0 + 0.0 * self.least.value)


def differs_on_one_worker() -> str:
    """What is said of a layer that assigns what its own rows hold: on one of two workers it is what all rows hold."""
    messages, dp = Messages(), _data_parallel()
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((8,)), KeepsTheLeast(), keras.layers.Dense(2)]))
        model.compile(sgd(learning_rate=0.05), loss="mse")
    try:
        model.fit(DATA["x"][:24], DATA["y"][:24], verbose=0, shuffle=False)
    except tfscale.ParityError as error:
        return str(error)
    return "\n".join(each for each in messages.kept if "step" in each)
