"""Cases of the contract: losses, optimizers, metrics and models wherever people hold them.

None of them is found by looking at the attributes of a model: each is met where it is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.contract import GLOBAL_BATCH, Case, Outcome, observe_fit
from tests.training.models import TARGETS, TOKENS, X, adam, sgd

layers = keras.layers
ROWS = 58  # Two full batches and one of 10.
DATA = {"x": X[:ROWS], "y": TARGETS[:ROWS], "batch_size": GLOBAL_BATCH}
FEWER = {"x": X[:50], "y": TARGETS[:50], "batch_size": GLOBAL_BATCH}  # Two full batches and one of 2.
MODULE_LOSS = keras.losses.MeanSquaredError()


class OwnStep(keras.Model):
    """The `train_step` of Keras's guide on custom training; one way of computing the loss per subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = layers.Dense(4, activation="tanh")
        self.out = layers.Dense(2)
        self.kept = {"loss": keras.losses.MeanSquaredError(), "more": [keras.losses.MeanAbsoluteError()]}
        self.tracker = keras.metrics.Mean(name="tracked")

    def call(self, inputs: Any) -> Any:
        return self.out(self.hidden(inputs))

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        raise NotImplementedError

    def changed(self, gradients: Any) -> Any:
        return gradients

    def apply(self, gradients: Any) -> None:
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.loss_of(x, y, self(x))
        self.apply(self.changed(tape.gradient(loss, self.trainable_variables)))
        self.tracker.update_state(tf.reduce_mean(loss) if loss.shape.rank else loss)
        return {"under another name": self.tracker.result()}


def own_step(
    build: Callable[[], keras.Model],
    optimizer: Callable[[], Any] = lambda: sgd(learning_rate=0.05),
    data: Mapping[str, Any] = DATA,
    **compiled: Any,
) -> Case:
    def run(dp: Any) -> Outcome:
        with dp.scope():
            model = dp.prepare(build())
            model.compile(optimizer(), **compiled)
        return observe_fit(model, data)

    return Case(run)


class ModuleLoss(OwnStep):
    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return MODULE_LOSS(y, y_pred)


class KeptLosses(OwnStep):
    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return self.kept["loss"](y, y_pred) + 0.1 * self.kept["more"][0](y, y_pred)


class LossOnTheSpot(OwnStep):
    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        values = keras.losses.MeanSquaredError(reduction="none")(y, y_pred)
        return keras.losses.Huber()(y, y_pred) + tf.reduce_mean(values)


class RealOrNot(keras.losses.Loss):
    """As of GauGAN: the scores of a picture, and one number that says what it is."""

    def __init__(self) -> None:
        super().__init__()
        self.hinge = keras.losses.Hinge()

    def call(self, scores: Any, is_real: Any) -> Any:
        return self.hinge(is_real, scores)


class LossOfANumber(OwnStep):
    def __init__(self) -> None:
        super().__init__()
        self.real_or_not = RealOrNot()

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return self.real_or_not(y_pred, 1.0) + 0.5 * self.real_or_not(y_pred - y, -1)


class LossVector(OwnStep):
    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return tf.reduce_sum(tf.square(y_pred - y), axis=-1)


class LossSum(OwnStep):
    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return tf.reduce_sum(tf.square(y_pred - y))


class LateLossSum(OwnStep):
    """Zero for ordinary rows, and so is its gradient."""

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return tf.reduce_sum(tf.nn.relu(tf.abs(self.out(x[:, :4])) - 2.0)) + 0.0 * tf.reduce_sum(y_pred)


class NoisyLossSum(OwnStep):
    """What it draws does not count, but would keep two runs from being compared."""

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return tf.reduce_sum(tf.square(y_pred - y + 0.0 * tf.random.normal(tf.shape(y))))


class SumAndMean(OwnStep):
    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        total = tfscale.sum_over_examples(tf.reduce_sum(tf.square(y_pred - y)))
        return 0.05 * total + tf.reduce_mean(tf.abs(y_pred))


class ClippedByHand(ModuleLoss):
    def changed(self, gradients: Any) -> Any:
        return tf.clip_by_global_norm(tfscale.sum_gradients(gradients), 0.05)[0]


class ClippedAfterTape(ModuleLoss):
    """As people write it, here beside a loop of TensorFlow that reads weights; the norm is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = layers.SimpleRNN(3)
        self.norm = keras.metrics.Mean(name="norm")

    def call(self, inputs: Any) -> Any:
        return self.out(self.recurrent(tf.expand_dims(self.hidden(inputs), -1)))

    def changed(self, gradients: Any) -> Any:
        gradients, norm = tf.clip_by_global_norm(gradients, 0.05)
        self.norm.update_state(norm)
        return gradients


class PenaltyOfGradients(ModuleLoss):
    """A gradient of what was made of gradients, taken of the same variables."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = self.loss_of(x, y, self(x))
            total = loss + 0.1 * tf.linalg.global_norm(inner.gradient(loss, self.trainable_variables))
        self.apply(outer.gradient(total, self.trainable_variables))
        self.tracker.update_state(loss)
        return {"total": total}


class AccumulatedByHand(ModuleLoss):
    """Each update is the mean over two batches; every gradient is taken a step up, where the loss is sharper."""

    def build(self, input_shape: Any) -> None:
        self.hidden.build(input_shape)
        self.out.build((None, 4))
        self.count = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False, name="count")
        self.sums = [
            self.add_weight(shape=each.shape, initializer="zeros", trainable=False, name=f"sum_{index}")
            for index, each in enumerate(list(self.trainable_variables))
        ]

    def gradients_of(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.loss_of(x, y, self(x))
        return loss, tape.gradient(loss, self.trainable_variables)

    def train_step(self, data: Any) -> Any:
        loss, gradients = self.gradients_of(*data)
        steps = [0.05 * each / tf.linalg.global_norm(gradients) for each in gradients]
        for variable, step in zip(self.trainable_variables, steps, strict=True):
            variable.assign_add(step)
        _, gradients = self.gradients_of(*data)
        for variable, step in zip(self.trainable_variables, steps, strict=True):
            variable.assign_sub(step)
        for total, gradient in zip(self.sums, gradients, strict=True):
            total.assign_add(gradient)
        self.count.assign_add(1)
        tf.cond(tf.equal(self.count, 2), self.update, lambda: None)
        self.tracker.update_state(loss)
        return {"loss": loss}

    def update(self) -> None:
        self.apply([tf.convert_to_tensor(total) / 2.0 for total in self.sums])
        for variable in [self.count, *self.sums]:
            variable.assign(tf.zeros_like(variable))


class Centred(ModuleLoss):
    def call(self, inputs: Any) -> Any:
        hidden = self.hidden(inputs)
        return self.out(hidden - tf.reduce_mean(tfscale.gather_rows(hidden), axis=0))


class Contrastive(OwnStep):
    """Each of the own rows against all rows."""

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return tf.reduce_mean(tf.reduce_logsumexp(tf.matmul(y_pred, tfscale.gather_rows(y_pred), transpose_b=True), 1))


class OptimizerInDict(ModuleLoss):
    def __init__(self) -> None:
        super().__init__()
        self.kept["optimizers"] = {"only": adam(learning_rate=0.05, clipnorm=0.01)}

    def apply(self, gradients: Any) -> None:
        self.kept["optimizers"]["only"].apply_gradients(zip(gradients, self.trainable_variables, strict=True))


class HeadOfStep(OwnStep):
    """A layer that only the step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.head = layers.Dense(3)

    def build(self, shape: Any) -> None:
        """Nothing: the step makes what it needs."""

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return tf.reduce_mean(tf.square(self.head(self.hidden(x)) - 1.0)) + MODULE_LOSS(y, y_pred)


class SumAdding(layers.Layer):
    def call(self, inputs: Any) -> Any:
        self.add_loss(1e-2 * tf.reduce_sum(tf.square(inputs)))
        return inputs


class TrainingAdding(layers.Layer):
    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.add_loss(1e-2 * tf.reduce_sum(tf.square(inputs)))
        return inputs


class MeanAdding(layers.Layer):
    def call(self, inputs: Any) -> Any:
        self.add_loss(1e-1 * tf.reduce_mean(tf.square(inputs)))
        return inputs


class LateAdding(layers.Layer):
    """Zero for ordinary rows."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(tf.reduce_sum(tf.nn.relu(tf.abs(inputs) - 2.5)))
        return inputs


class OwnStepLosses(OwnStep):
    """Adds up what layers add, in a step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.adding = SumAdding()

    def call(self, inputs: Any) -> Any:
        return self.out(self.adding(self.hidden(inputs)))

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return MODULE_LOSS(y, y_pred) + sum(self.losses)


def _adding(dp: Any) -> Outcome:
    with dp.scope():
        inputs = keras.Input((8,))
        hidden = TrainingAdding()(layers.Dense(4)(inputs))
        hidden = LateAdding()(MeanAdding()(hidden))
        model = dp.prepare(keras.Model(inputs, layers.Dense(2)(hidden)))
        model.compile(sgd(learning_rate=0.02), "mse")
    return observe_fit(model, {**DATA, "validation_data": (X[:31], TARGETS[:31])})


class Endpoint(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.loss_fn = keras.losses.MeanSquaredError()

    def call(self, predictions: Any, targets: Any) -> Any:
        self.add_loss(self.loss_fn(targets, predictions))
        return predictions


def _endpoint(dp: Any) -> Outcome:
    with dp.scope():
        x, y = keras.Input((8,), name="x"), keras.Input((2,), name="y")
        model = dp.prepare(keras.Model({"x": x, "y": y}, Endpoint()(layers.Dense(2)(x), y)))
        model.compile(sgd(learning_rate=0.05))
    return observe_fit(model, {"x": {"x": DATA["x"], "y": DATA["y"]}, "batch_size": GLOBAL_BATCH})


class Distiller(keras.Model):
    """Losses of `compute_loss`, beside those of `compile`."""

    def __init__(self) -> None:
        super().__init__()
        self.student = layers.Dense(2)
        self.teacher = layers.Dense(2, trainable=False)
        self.distance = keras.losses.MeanAbsoluteError()

    def build(self, shape: Any) -> None:
        """Nothing: `compute_loss` makes what it needs."""

    def call(self, inputs: Any) -> Any:
        return self.student(inputs)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return 0.3 * loss + self.distance(self.teacher(x), y_pred)


def _distiller(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(Distiller())
        model.compile(sgd(learning_rate=0.05), "mse", metrics=["mae"])
    return observe_fit(model, {**DATA, "validation_data": (X[:31], TARGETS[:31])})


class Positions(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = layers.Embedding(12, 4), layers.Embedding(6, 4)

    def call(self, inputs: Any) -> Any:
        return self.tokens(inputs) + self.positions(keras.ops.arange(0, keras.ops.shape(inputs)[-1]))


def _positions(length: int | None, optimizer: Callable[[], Any], **options: Any) -> Case:
    def run(dp: Any) -> Outcome:
        with dp.scope():
            inputs = keras.Input((length,), dtype="int32")
            model = dp.prepare(keras.Model(inputs, layers.Dense(12)(Positions()(inputs))))
            model.compile(optimizer(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        tokens = TOKENS[:ROWS]
        return observe_fit(model, {"x": tokens, "y": np.roll(tokens, 1, 1), "batch_size": GLOBAL_BATCH})

    return Case(run, options=options)


class WithoutCall(keras.Model):
    """A VAE without its noise: no `call`, data that are inputs alone, an optimizer that nobody builds."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = layers.Dense(3, activation="tanh"), keras.Sequential([layers.Dense(8)])
        self.total = keras.metrics.Mean(name="total")

    @property
    def metrics(self) -> list[Any]:
        return [self.total]

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            code = self.encoder(data)
            code += 0.0 * keras.random.normal(tf.shape(code))
            loss = tf.reduce_mean(tf.reduce_sum(tf.square(self.decoder(code) - data), axis=1))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.total.update_state(loss)
        return {"total": self.total.result()}


def _without_call(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(WithoutCall())
        model.compile(adam())
    return observe_fit(model, {"x": X[:ROWS], "batch_size": GLOBAL_BATCH})


class Players(keras.Model):
    """A GAN of the tutorials: two optimizers that nobody builds, a loss of the module, parts that are not built."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.Sequential([layers.Dense(4, activation="tanh"), layers.Dense(8)])
        self.critic = keras.Sequential([layers.Dense(4, activation="tanh"), layers.Dense(1)])

    def compile(self, **optimizers: Any) -> None:
        super().compile()
        self.optimizers = optimizers
        self.trackers = {name: keras.metrics.Mean(name=name) for name in optimizers}

    def train_step(self, data: Any) -> Any:
        losses = {}
        for name, part in (("critic", self.critic), ("generator", self.generator)):
            with tf.GradientTape() as tape:
                judged = self.critic(tf.concat([self.generator(data[:, :3]), data], axis=0))
                ones = tf.ones_like(judged[: tf.shape(data)[0]])
                labels = tf.concat([ones, -ones], axis=0) if name == "critic" else tf.concat([-ones, -ones], axis=0)
                losses[name] = MODULE_LOSS(labels, judged)
            gradients = tape.gradient(losses[name], part.trainable_weights)
            self.optimizers[name].apply_gradients(zip(gradients, part.trainable_weights, strict=True))
            self.trackers[name].update_state(losses[name])
        return {name: tracker.result() for name, tracker in self.trackers.items()}


def _players(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(Players())
        model.compile(critic=adam(), generator=adam(clipnorm=0.1))
    return observe_fit(model, {"x": X[:ROWS], "batch_size": GLOBAL_BATCH})


def _network_of_module(dp: Any) -> Outcome:
    """A network and an optimizer that no model holds, trained in a model's step."""
    with dp.scope():
        network = keras.Sequential([keras.Input((8,)), layers.Dense(2)])
        optimizer = sgd(learning_rate=0.05, clipnorm=0.02)

        class Training(OwnStep):
            def train_step(self, data: Any) -> Any:
                x, y = data
                with tf.GradientTape() as tape:
                    loss = MODULE_LOSS(y, network(x))
                gradients = tape.gradient(loss, network.trainable_variables)
                optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
                self.tracker.update_state(loss)
                return {"loss of a network": self.tracker.result()}

        model = dp.prepare(Training())
        model.compile()
    outcome = observe_fit(model, DATA)
    return outcome | {"weights": [np.array(each) for each in network.get_weights()]}


def _metrics_of_module(dp: Any) -> Outcome:
    """Metrics that no model holds; a log that is called like Keras's own."""
    with dp.scope():
        mean, error = keras.metrics.Mean(name="mean"), keras.metrics.MeanAbsoluteError()

        class Counting(OwnStep):
            def train_step(self, data: Any) -> Any:
                x, y = data
                with tf.GradientTape() as tape:
                    y_pred = self(x)
                    loss = MODULE_LOSS(y, y_pred)
                self.apply(tape.gradient(loss, self.trainable_variables))
                mean.update_state(loss)
                error.update_state(y, y_pred)
                return {"mean": mean.result(), "error": error.result(), "loss": loss}

        model = dp.prepare(Counting())
        model.compile(adam(), loss="mse")
    return observe_fit(model, DATA)


class PerCent(OwnStep):
    """Logs what it computes of a metric's result."""

    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        return {**logs, "per cent": 100.0 * tf.sqrt(self.tracker.result())}

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return MODULE_LOSS(y, y_pred)


class InFunction(OwnStep):
    """A step that is a `tf.function`: what it returns are no longer the metrics' results themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.error = keras.metrics.MeanAbsoluteError(name="error")

    @tf.function
    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        return {**logs, "error": self.error.result(), "twice": 2.0 * self.error.result()}

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        self.error.update_state(y, y_pred)
        return MODULE_LOSS(y, y_pred)


class Scaled(layers.Layer):
    """Makes its variables of tensors, with and without Keras."""

    def build(self, shape: Any) -> None:
        self.scale = keras.Variable(keras.ops.ones((shape[-1],)) * 0.5)
        self.shift = tf.Variable(tf.zeros((2,)) + 0.1, trainable=False)

    def call(self, inputs: Any) -> Any:
        return inputs * self.scale + self.shift


class MadeOfTensors(OwnStep):
    """Its second network and its optimizer (Nadam keeps a product that begins with a tensor) are built by the step."""

    def __init__(self) -> None:
        super().__init__()
        self.scaled = Scaled()

    def build(self, shape: Any) -> None:
        self.hidden.build(shape)
        self.out.build((None, 4))

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return MODULE_LOSS(y, self.scaled(y_pred))


def _of_static_shape(build: Callable[[], keras.Model]) -> Case:
    """Each of 3 replicas has 4 rows of a batch: one more than there are replicas, as the check would take for one."""

    def run(dp: Any) -> Outcome:
        with dp.scope():
            model = dp.prepare(build())
            model.compile(sgd(learning_rate=0.02))
        rows = tf.data.Dataset.from_tensor_slices((X, TARGETS))
        return observe_fit(model, {"x": rows.batch(12, drop_remainder=True)})

    return Case(run, global_batch=12)


def _r2(y_true: Any, y_pred: Any) -> Any:
    """One number of a batch."""
    spread = tf.reduce_sum(tf.square(y_true - tf.reduce_mean(y_true)))
    return 1 - tf.reduce_sum(tf.square(y_true - y_pred)) / spread


def _share_of_large(y_true: Any, y_pred: Any) -> Any:
    """As a masked accuracy, of which the first rows may say nothing: none of them counts."""
    counts = tf.cast(y_true > 0.5, y_pred.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(counts * tf.cast(y_pred > 0.0, y_pred.dtype)), tf.reduce_sum(counts))


@keras.saving.register_keras_serializable("tests")
class LargeShare(keras.metrics.Metric):
    """The same as a class: the mean over batches of a ratio."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.total, self.count = (self.add_weight(name=name, initializer="zeros") for name in ("total", "count"))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(_share_of_large(tf.cast(y_true, y_pred.dtype), y_pred))
        self.count.assign_add(1.0)

    def result(self) -> Any:
        return self.total / self.count


def _silent_at_first(dp: Any) -> Outcome:
    order = np.argsort(TARGETS[:ROWS].max(axis=1))
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((8,)), layers.Dense(2)]))
        model.compile(sgd(), "mse", metrics=[_share_of_large, LargeShare(name="large")])
    # The last batch of the validation is one row, which the first replicas do not get.
    validation = {"validation_data": (X[:25], TARGETS[:25]), "validation_batch_size": 8}
    return observe_fit(model, {**DATA, "x": X[order], "y": TARGETS[order], **validation})


def _number_of_a_batch(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((8,)), layers.Dense(2)]))
        model.compile(sgd(), "mse", metrics=[_r2, keras.metrics.PearsonCorrelation(axis=None)])
    return observe_fit(model, {**DATA, "validation_data": (X[:31], TARGETS[:31])})


def _unprepared(dp: Any) -> Outcome:
    """Parts of a prepared model, and another one, used as they are."""
    with dp.scope():
        inputs = keras.Input((8,))
        hidden = layers.Dense(3)(inputs)
        model = dp.prepare(keras.Model(inputs, layers.Dense(2)(hidden)))
        model.compile(sgd(), "mse")
        encoder = keras.Model(inputs, hidden)
        other = keras.Sequential([keras.Input((8,)), layers.Dense(2)])
        other.compile(sgd(), "mse", metrics=["mae"])
    outcome = observe_fit(model, DATA)
    outcome["predict"] = [encoder.predict(X[:ROWS], verbose=0)]
    outcome["evaluate"] = [np.array(other.evaluate(X[:ROWS], TARGETS[:ROWS], verbose=0))]
    fitted = observe_fit(other, DATA)
    return outcome | {f"other {name}": arrays for name, arrays in fitted.items()}


class Triples(OwnStep):
    """Three inputs in a tuple, and the loss of each of them to the tape."""

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            anchor, near, far = (self.hidden(each) for each in data)
            distance = tf.reduce_sum(tf.square(anchor - near) - tf.square(anchor - far), axis=-1)
            loss = tf.nn.softplus(distance)
        variables = self.hidden.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def _triples(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(Triples())
        model.compile(sgd(learning_rate=0.002))
    rows = tf.data.Dataset.from_tensor_slices((X[:ROWS], X[ROWS - 1 :: -1], np.roll(X[:ROWS], 3, axis=0)))
    return observe_fit(model, {"x": rows.batch(GLOBAL_BATCH)})


class Pairs(ModuleLoss):
    """Takes two batches of one size, of which no shape tells that they hold as many rows."""

    def train_step(self, data: Any) -> Any:
        (x, y), others = data
        return super().train_step((x - 0.1 * others, y))

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return MODULE_LOSS(y, y_pred) + tf.reduce_max(tf.square(y_pred - tf.reduce_mean(y_pred, axis=0)))


def _pairs(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(Pairs())
        model.compile(sgd(learning_rate=0.05))
    rows = tf.data.Dataset.from_tensor_slices((X[:50], TARGETS[:50]))
    others = tf.data.Dataset.from_tensor_slices(X[49::-1])
    return observe_fit(model, {"x": tf.data.Dataset.zip((rows, others)).batch(GLOBAL_BATCH)})


def _dictionary(dp: Any) -> Outcome:
    class Dictionary(ModuleLoss):
        def train_step(self, data: Any) -> Any:
            return super().train_step((data["x"], data["y"]))

    with dp.scope():
        model = dp.prepare(Dictionary())
        model.compile(adam())
    return observe_fit(model, {"x": {"x": DATA["x"], "y": DATA["y"]}, "batch_size": GLOBAL_BATCH})


class Averaging(layers.Layer):
    """Keeps an average of its own."""

    def __init__(self, of: Callable[[Any], Any]) -> None:
        super().__init__()
        self.of = of

    def build(self, shape: Any) -> None:
        self.average = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.average.assign(0.9 * self.average + 0.1 * tf.reduce_mean(self.of(inputs), axis=0))
        return inputs


class KeepsAverage(ModuleLoss):
    of = staticmethod(lambda rows: rows)

    def __init__(self) -> None:
        super().__init__()
        self.averaging = Averaging(self.of)

    def call(self, inputs: Any) -> Any:
        return self.out(self.averaging(self.hidden(inputs), training=True))


class ListOfOne(ModuleLoss):
    def __init__(self) -> None:
        super().__init__()
        self.listed = keras.metrics.Mean(name="listed")

    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        self.listed.update_state([tf.reduce_mean(self(data[0]))])
        return {**logs, "of_a_list": self.listed.result()}


class ResultIsVariable(keras.metrics.Metric):
    """The metric of Keras's guide on `fit`."""

    def __init__(self) -> None:
        super().__init__(name="hits")
        self.hits = self.add_variable((), "zeros", name="hits")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.hits.assign_add(keras.ops.sum(keras.ops.cast(y_true * y_pred > 0, "float32")))

    def result(self) -> Any:
        return self.hits.value


class ClipsInApply(keras.optimizers.SGD):
    """Does something of its own with the gradients of a whole batch."""

    def apply_gradients(self, grads_and_vars: Any) -> Any:
        gradients, variables = zip(*grads_and_vars, strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, 0.05)
        return super().apply_gradients(zip(clipped, variables, strict=True))


def _compiled(build: Callable[[], keras.Model], **compiled: Callable[[], Any]) -> Case:
    def run(dp: Any) -> Outcome:
        with dp.scope():
            model = dp.prepare(build())
            model.compile(**{name: make() for name, make in compiled.items()})
        return observe_fit(model, DATA)

    return Case(run)


def _frozen(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(_regularized())
        model.trainable = False
        model.compile(sgd(), "mse")
    with warnings.catch_warnings():
        # Of Keras and tfscale: there is nothing to train.
        warnings.simplefilter("ignore")
        return observe_fit(model, DATA)


def _regularized() -> keras.Model:
    inputs = keras.Input((X.shape[1],))
    hidden = layers.Dense(4, activity_regularizer=lambda values: 0.01 * keras.ops.sum(values))(inputs)
    return keras.Model(inputs, layers.Dense(2)(hidden))


class KeepsGatheredAverage(KeepsAverage):
    of = staticmethod(tfscale.gather_rows)


class Kernel(keras.metrics.Metric):
    """One number of all rows, averaged by a metric of its own."""

    def __init__(self) -> None:
        super().__init__(name="kernel")
        self.mean = keras.metrics.Mean()

    def update_state(self, rows: Any, others: Any, sample_weight: Any = None) -> None:
        self.mean.update_state(tf.reduce_mean((tf.matmul(rows, others, transpose_b=True) + 1.0) ** 3))

    def result(self) -> Any:
        return self.mean.result()

    def reset_state(self) -> None:
        self.mean.reset_state()


class LogsKernel(ModuleLoss):
    def __init__(self) -> None:
        super().__init__()
        self.kernel = Kernel()

    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        self.kernel.update_state(data[0], self(data[0]) @ tf.ones((2, data[0].shape[-1])))
        return {**logs, "kernel_of_all": self.kernel.result()}


class RampsUp(ModuleLoss):
    """A loss in which rows meet, with a weight that is zero in the first step."""

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        weight = tf.minimum(tf.cast(self.optimizer.iterations, tf.float32), 2.0)
        return MODULE_LOSS(y, y_pred) + weight * tf.reduce_max(tf.square(y_pred - tf.reduce_mean(y_pred, axis=0)))


class Annealed(ModuleLoss):
    """A sum over the examples beside a mean, with a weight that a callback changes later."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = keras.Variable(0.0, trainable=False)

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return MODULE_LOSS(y, y_pred) + self.weight * tf.reduce_sum(tf.square(y_pred))


def _annealed(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(Annealed())
        model.compile(sgd(learning_rate=0.05))
    raised = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: model.weight.assign(0.01 * batch))
    model.fit(**DATA, verbose=0, shuffle=False, callbacks=[raised])
    return {"weights": [np.array(each) for each in model.get_weights()]}


class ClipsFromSecond(ModuleLoss):
    def changed(self, gradients: Any) -> Any:
        clipped, _ = tf.clip_by_global_norm(gradients, 0.1)
        is_first = tf.equal(self.optimizer.iterations, 0)
        return [tf.where(is_first, own, new) for own, new in zip(gradients, clipped, strict=True)]


class AsksForNumbers(ModuleLoss):
    """What only an eager step can do, in a layer's call and between tape and optimizer."""

    def call(self, inputs: Any) -> Any:
        hidden = self.hidden(inputs)
        return self.out(hidden if np.all(np.isfinite(hidden.numpy())) else tf.zeros_like(hidden))

    def changed(self, gradients: Any) -> Any:
        return gradients if float(gradients[0].numpy().min()) < 1e9 else [0.0 * each for each in gradients]


class LossOfAttribute(OwnStep):
    """The loss is asked once more when an optimizer has been applied."""

    def __init__(self) -> None:
        super().__init__()
        self.loss_fn = keras.losses.MeanSquaredError()
        self.afterwards = keras.metrics.Mean(name="afterwards")

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return self.loss_fn(y, y_pred)

    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        self.afterwards.update_state(self.loss_fn(data[1], self(data[0])))
        return {**logs, "loss_afterwards": self.afterwards.result()}


class Asking(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = layers.Dense(4, activation="tanh"), layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        return self.out(self.hidden(inputs) * float(np.isfinite(inputs.numpy()).all()))


def _asking_in_a_call(dp: Any) -> Outcome:
    """With Keras's own step, of which nothing can be built from shapes."""
    with dp.scope():
        model = dp.prepare(Asking())
        model.compile(adam(), "mse", metrics=["mae"], run_eagerly=True)
    outcome = observe_fit(model, {**FEWER, "validation_data": (X[:31], TARGETS[:31])})
    outcome["predict"] = [model.predict(X[:31], batch_size=GLOBAL_BATCH, verbose=0)]
    return outcome


class Centers(layers.Layer):
    """As of center loss: each class has a center, which the layer moves by assign towards the rows of the class."""

    def __init__(self, indices_per_unit: float) -> None:
        super().__init__()
        self.indices_per_unit = indices_per_unit

    def build(self, shapes: Any) -> None:
        self.centers = self.add_weight(shape=(3, shapes[0][-1]), trainable=False, name="centers")

    def call(self, inputs: Any, training: bool = False) -> Any:
        features, labels = inputs
        classes = tf.one_hot(tf.cast(self.indices_per_unit * labels[:, 0], tf.int32), 3)
        away = tf.matmul(classes, tf.convert_to_tensor(self.centers)) - features
        if training:
            counts = tf.reduce_sum(classes, axis=0)[:, None]
            self.centers.assign_sub(0.5 * tf.matmul(classes, away, transpose_a=True) / (1.0 + counts))
        self.add_loss(0.1 * tf.reduce_mean(tf.reduce_sum(tf.square(away), axis=1)))
        return features


def center_loss(indices_per_unit: float) -> Case:
    """Labels come as numbers of floating point, which lie on the edge of the next class."""
    labels = (np.arange(ROWS) * 7 % 3)[:, None]

    def build() -> keras.Model:
        pictures, classes = keras.Input((8,)), keras.Input((1,))
        features = layers.Dense(4, activation="tanh")(pictures)
        features = Centers(indices_per_unit)([features, classes])
        return keras.Model([pictures, classes], layers.Dense(3, activation="softmax")(features))

    data = [X[:ROWS], (labels / indices_per_unit).astype("float32")]
    return own_step(
        build,
        data={"x": data, "y": labels, "batch_size": GLOBAL_BATCH},
        loss="sparse_categorical_crossentropy",
    )


CASES: dict[str, Case] = {
    "centers of classes, whose indices are whole numbers": center_loss(1.0),
    "centers of classes, whose indices are halves": center_loss(2.0),
    "loss of a module, in a step": own_step(ModuleLoss),
    "losses in a dict and a list, in a step": own_step(KeptLosses),
    "losses made on the spot, in a step": own_step(LossOnTheSpot),
    "loss of a class, given a number for labels": own_step(LossOfANumber),
    "loss vector given to the tape": own_step(LossVector, lambda: sgd(learning_rate=0.002)),
    "loss that is a sum by hand": own_step(LossSum, lambda: sgd(learning_rate=0.002)),
    "loss that is a sum by hand, zero at first": own_step(LateLossSum, lambda: sgd(learning_rate=0.01)),
    "loss that is a sum by hand, beside noise": own_step(NoisyLossSum, lambda: sgd(learning_rate=0.002)),
    "sum_over_examples beside a mean": own_step(SumAndMean, lambda: sgd(learning_rate=0.01)),
    "sum_gradients before clipping by hand": own_step(ClippedByHand),
    "gradients clipped by hand, beside a recurrent layer": own_step(ClippedAfterTape, data=FEWER),
    "penalty of the gradients' norm": own_step(PenaltyOfGradients, data=FEWER),
    "gradients accumulated by hand, of a step up": own_step(AccumulatedByHand, data=FEWER),
    "rows that meet from the second step on": own_step(RampsUp, data=FEWER),
    "a sum beside a mean, whose weight a callback raises": Case(_annealed),
    "gradients clipped by hand from the second step on": own_step(ClipsFromSecond, data=FEWER),
    "gather_rows in a layer": own_step(Centred),
    "gather_rows in a contrastive loss": own_step(Contrastive),
    "optimizer in a dict": own_step(OptimizerInDict),
    "layer that only the step uses": own_step(HeadOfStep),
    "sum of `losses` in a step": own_step(OwnStepLosses),
    "add_loss in training only, zero at first, sums and means": Case(_adding),
    "endpoint layer": Case(_endpoint),
    "losses of compute_loss": Case(_distiller),
    "positions, Adam": _positions(6, lambda: adam(learning_rate=0.05)),
    "positions of dynamic length, RMSprop": _positions(None, lambda: keras.optimizers.RMSprop(0.02)),
    "positions, accumulation": _positions(6, lambda: adam(gradient_accumulation_steps=2)),
    "positions, micro-steps": _positions(6, lambda: adam(learning_rate=0.05), micro_batch=3),
    "no call, nothing built": Case(_without_call),
    "two optimizers, nothing built": Case(_players),
    "network and optimizer of a module": Case(_network_of_module),
    "metrics of a module": Case(_metrics_of_module),
    "metrics that are one number of a batch": Case(_number_of_a_batch),
    "metrics of which the first rows say nothing": Case(_silent_at_first),
    "models that were not prepared": Case(_unprepared),
    "log computed of a metric's result": own_step(PerCent),
    "metrics' results out of a tf.function, last batch smaller than N": own_step(InFunction, data=FEWER),
    "a train_step that is a tf.function, as many rows on a replica as the check takes": _of_static_shape(InFunction),
    "values of tensors for what a step makes": own_step(MadeOfTensors, lambda: keras.optimizers.Nadam(0.01)),
    "a metric of a list of one number": own_step(ListOfOne),
    "a metric whose result is a variable": _compiled(
        _regularized, optimizer=sgd, loss=lambda: "mse", metrics=lambda: [ResultIsVariable()]
    ),
    "an optimizer with its own apply_gradients": _compiled(
        _regularized, optimizer=lambda: ClipsInApply(0.1), loss=lambda: "mse"
    ),
    "an average of the rows of all": own_step(KeepsGatheredAverage),
    "a metric that keeps a metric": own_step(LogsKernel),
    "no trainable weights": Case(_frozen),
    "triples": Case(_triples),
    "rows that meet, of two data sets in one": Case(_pairs),
    "one dict of data": Case(_dictionary),
}

CASES |= {
    f"{name}, run_eagerly": own_step(build, optimizer, FEWER, run_eagerly=True)
    for name, (build, optimizer) in {
        "numbers asked for in a step": (AsksForNumbers, lambda: adam(learning_rate=0.05)),
        "losses of attributes": (LossOfAttribute, lambda: sgd(learning_rate=0.05)),
        "loss vector given to the tape": (LossVector, lambda: sgd(learning_rate=0.002)),
        "gradients clipped by hand": (ClippedAfterTape, lambda: sgd(learning_rate=0.05)),
        "optimizer in a dict": (OptimizerInDict, lambda: sgd(learning_rate=0.05)),
        "layer that only the step uses": (HeadOfStep, lambda: sgd(learning_rate=0.05)),
        "log computed of a metric's result": (PerCent, lambda: sgd(learning_rate=0.05)),
        "values of tensors for what a step makes": (MadeOfTensors, lambda: keras.optimizers.Nadam(0.01)),
    }.items()
} | {
    "numbers asked for in a call, run_eagerly": Case(_asking_in_a_call),
    "losses of layers, run_eagerly": _compiled(
        _regularized, optimizer=sgd, loss=lambda: "mse", run_eagerly=lambda: True
    ),
}

# They mix the rows of a batch: in a graph their layers are divided, and nothing else; eagerly each is refused before
# anything is updated, by a word of the way out.


@tf.custom_gradient
def _of_unit_length(x: Any) -> Any:
    return tf.identity(x), lambda slope: slope / tf.norm(slope)


class SlopeOfUnitLength(ModuleLoss):
    """The rows of a batch meet on the way back only."""

    def call(self, inputs: Any) -> Any:
        return self.out(_of_unit_length(self.hidden(inputs)))


class CentredOnOwnRows(ModuleLoss):
    def call(self, inputs: Any) -> Any:
        hidden = self.hidden(inputs)
        return self.out(hidden - tf.reduce_mean(hidden, axis=0))


class SumBesideMean(OwnStep):
    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return tf.reduce_sum(tf.square(y_pred - y)) + tf.reduce_mean(tf.abs(y_pred))


class LogsLargest(ModuleLoss):
    def train_step(self, data: Any) -> Any:
        return {**super().train_step(data), "largest": tf.reduce_max(self(data[0]))}


class FirstTwoRows(ModuleLoss):
    """Takes the first dimension for something else than the examples."""

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return tf.reduce_mean(tf.square(y_pred[0] - y_pred[1]))


class Adapts(ModuleLoss):
    """Keeps a number that the rows of the first batch, whatever they are, clip to the same on all replicas."""

    def __init__(self) -> None:
        super().__init__()
        self.adapted = tf.Variable(0.5, trainable=False)

    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        moved = self.adapted + tf.reduce_mean(tf.square(data[0])) - 0.01
        self.adapted.assign(tf.clip_by_value(moved, 0.0, 0.5))
        return logs


class Hardest(OwnStep):
    """The mean of the largest losses of a batch."""

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        losses = tf.reduce_mean(tf.square(y_pred - y), axis=-1)
        return tf.reduce_mean(tf.math.top_k(losses, k=tf.shape(losses)[0] - 1 if self.few else 6).values)

    few = False


class HardestButOne(Hardest):
    few = True


class KnownRows(ModuleLoss):
    """Knows how many rows a batch has."""

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return MODULE_LOSS(y, tf.reshape(y_pred, (GLOBAL_BATCH, -1)))


class DrawsBeside(ModuleLoss):
    """Mixes rows, and draws numbers between the calls of its layers."""

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        noise = tf.random.normal(tf.shape(y_pred))
        return MODULE_LOSS(y, y_pred + 0.1 * noise) + tf.reduce_max(tf.square(y_pred - tf.reduce_mean(y_pred, axis=0)))


class CountsRows(layers.Layer):
    """Tells how many rows it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def call(self, inputs: Any) -> Any:
        told = tf.numpy_function(self.note, [tf.shape(inputs)[0]], tf.int32)
        with tf.control_dependencies([told]):
            return tf.identity(inputs)

    def note(self, count: Any) -> Any:
        self.seen.append(int(count))
        return count


class MixesOutside(ModuleLoss):
    def __init__(self) -> None:
        super().__init__()
        self.counts = CountsRows()

    def call(self, inputs: Any) -> Any:
        return self.out(self.counts(self.hidden(inputs)))

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return MODULE_LOSS(y, y_pred) + tf.reduce_max(tf.square(y_pred - tf.reduce_mean(y_pred, axis=0)))


REFUSED: dict[str, tuple[Callable[[], keras.Model], str]] = {
    "a slope of unit length": (SlopeOfUnitLength, "gather_rows"),
    "centred on own rows": (CentredOnOwnRows, "gather_rows"),
    "a sum beside a mean": (SumBesideMean, "sum_over_examples"),
    "a layer that keeps an average": (KeepsAverage, "gather_rows"),
    "a log that is a maximum": (LogsLargest, "gather_rows"),
    "the first two rows of a replica": (FirstTwoRows, "gather_rows"),
    "a number that is clipped": (Adapts, "gather_rows"),
    "the hardest rows": (Hardest, "gather_rows"),
    "the hardest rows but one": (HardestButOne, "gather_rows"),
    "a known number of rows": (KnownRows, ""),
}


class Noisy(layers.Layer):
    """As GauGAN's sampler: noise for the size of a batch that is written down."""

    def build(self, shape: Any) -> None:
        self.size = shape[-1]

    def call(self, rows: Any) -> Any:
        return rows + 0.1 * tf.reshape(tf.range(GLOBAL_BATCH * self.size, dtype=rows.dtype) % 7, (GLOBAL_BATCH, -1))


class JoinsKnownRows(ModuleLoss):
    """Rows of a known number meet those of the data, in layers of Keras's own and in a functional model of them."""

    def __init__(self) -> None:
        super().__init__()
        self.noisy = Noisy()
        left, right = keras.Input((8,)), keras.Input((4,))
        self.joined = keras.Model(
            [left, right], layers.Concatenate()([left, layers.Dense(3, activation="tanh")(right)])
        )

    def call(self, inputs: Any) -> Any:
        joined = self.joined([inputs, self.noisy(self.hidden(inputs))])
        return self.out(layers.Concatenate()([inputs, joined]))


# Plain Keras needs full batches for these.
_OF_FULL_BATCHES = ("the hardest rows", "a known number of rows")
FULL = {"x": X[:48], "y": TARGETS[:48], "batch_size": GLOBAL_BATCH}
CASES["rows of a known number joined with others"] = own_step(JoinsKnownRows, data=FULL)
CASES |= {
    f"{name}, divided by calls": own_step(build, data=FULL if name in _OF_FULL_BATCHES else FEWER)
    for name, (build, _) in REFUSED.items()
}
