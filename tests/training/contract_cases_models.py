"""Cases of the contract: kinds of models, and classes with steps of their own."""

from __future__ import annotations

import types
from typing import Any

import keras
import tensorflow as tf

from tests.training.contract import Case, Outcome, fitting, flat_arrays, observe_fit
from tests.training.models import (
    FEWER_THAN_REPLICAS,
    LABELS,
    TARGETS,
    WEIGHTS,
    X,
    adam,
    classifying,
    cross_entropy,
    labelled,
    mlp,
    regressing,
    sgd,
    targeted,
)


class Subclassed(keras.Model):
    """Not built before `fit`."""

    def __init__(self, normalised: bool = False) -> None:
        super().__init__()
        self.first = keras.layers.Dense(16, activation="tanh", use_bias=not normalised)
        self.norm = keras.layers.BatchNormalization() if normalised else None
        self.second = keras.layers.Dense(2)
        self.loss_function = cross_entropy()

    def call(self, inputs: Any, training: bool = False) -> Any:
        hidden = self.first(inputs)
        if self.norm is not None:
            hidden = self.norm(hidden, training=training)
        return self.second(hidden)


class WithoutTraining(Subclassed):
    """Its `call` does not take `training`."""

    def call(self, inputs: Any) -> Any:
        return self.second(self.first(inputs))


def _set_on_the_object(dp: Any) -> Outcome:
    """Methods that a script puts on a model and a layer, and not into their classes."""

    def train_step(self: Any, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            losses = tf.square(tf.cast(y[:, None], tf.float32) - self(x, training=True))
            loss = tf.reduce_sum(losses)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}

    with dp.scope():
        model = mlp()
        hidden = model.layers[0]
        hidden.call = lambda inputs, **more: type(hidden).call(hidden, inputs - keras.ops.mean(inputs, 0), **more)
        model.train_step = types.MethodType(train_step, model)
        model.compile(sgd(learning_rate=0.01))
        dp.prepare(model)
    return observe_fit(model, labelled(58)())


def _loss_set_on_the_object(dp: Any) -> Outcome:
    def compute_loss(x: Any, y: Any, y_pred: Any, *more: Any, **others: Any) -> Any:
        del x, more, others
        return keras.ops.sum(keras.ops.square(keras.ops.cast(y[:, None], "float32") - y_pred))

    with dp.scope():
        model = dp.prepare(mlp())
        model.compute_loss = compute_loss
        model.compile(sgd(learning_rate=0.01), metrics=["accuracy"])
    return observe_fit(model, labelled(58)(), evaluated=True)


class OwnTrainStep(Subclassed):
    """The `train_step` of Keras's guide, with one way of computing the loss per subclass."""

    def train_step(self, data: Any) -> Any:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.loss_of(x, y, y_pred, sample_weight)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=tf.shape(x)[0])
            else:
                metric.update_state(y, y_pred, sample_weight=sample_weight)
        logs = {metric.name: metric.result() for metric in self.metrics}
        return {**logs, "size of outputs": tf.reduce_mean(tf.abs(y_pred))}

    def loss_of(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        return self.compute_loss(x, y, y_pred, sample_weight)


class AccumulatesInVariables(OwnTrainStep):
    """Gradients are added up in variables over two batches, and the optimizer is given the variables as they stand."""

    def __init__(self) -> None:
        super().__init__()
        self(tf.zeros((1, 8)))
        self.step_count = tf.Variable(0, trainable=False)
        self.totals = [tf.Variable(tf.zeros(each.shape), trainable=False) for each in self.trainable_variables]

    def train_step(self, data: Any) -> Any:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        self.step_count.assign_add(1)
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred, sample_weight)
        for total, gradient in zip(self.totals, tape.gradient(loss, self.trainable_variables), strict=True):
            total.assign_add(gradient / 2)
        tf.cond(self.step_count % 2 == 0, self._update, lambda: None)
        return {"loss": loss, **self.compute_metrics(x, y, y_pred, sample_weight)}

    def _update(self) -> None:
        self.optimizer.apply_gradients(zip(self.totals, self.trainable_variables, strict=True))
        for total in self.totals:
            total.assign(tf.zeros_like(total))


class LossObject(OwnTrainStep):
    def loss_of(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        del x
        return self.loss_function(y, y_pred, sample_weight)


class LossByHand(OwnTrainStep):
    def loss_of(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        del x, sample_weight
        values = keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
        return keras.ops.mean(values)


class OwnComputeLoss(Subclassed):
    """Adds a term of its own to the compiled loss."""

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss + 0.1 * keras.ops.mean(keras.ops.square(y_pred))


class OwnTestStep(Subclassed):
    def test_step(self, data: Any) -> Any:
        x, y = data
        y_pred = self(x, training=False)
        loss = self.compute_loss(x, y, y_pred)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=tf.shape(x)[0])
            else:
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}


class OwnPredictStep(Subclassed):
    def predict_step(self, data: Any) -> Any:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return {"logits": self(x, training=False), "best": tf.argmax(self(x), axis=-1)}


class TwoPlayers(keras.Model):
    """Two parts, two optimizers, a `compile` of its own: the shape of a GAN, without noise."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
        self.critic = keras.Sequential(
            [keras.Input((2,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
        )
        self.generator_loss = keras.metrics.Mean(name="generator_loss")
        self.critic_loss = keras.metrics.Mean(name="critic_loss")

    def compile(self, generator_optimizer: Any, critic_optimizer: Any, loss_function: Any) -> None:
        super().compile()
        self.generator_optimizer = generator_optimizer
        self.critic_optimizer = critic_optimizer
        self.loss_function = loss_function
        # Plain Keras too needs optimizers that are built before the first step on several devices.
        generator_optimizer.build(self.generator.trainable_variables)
        critic_optimizer.build(self.critic.trainable_variables)

    @property
    def metrics(self) -> list[Any]:
        return [self.generator_loss, self.critic_loss]

    def call(self, inputs: Any) -> Any:
        return self.critic(self.generator(inputs))

    def train_step(self, data: Any) -> Any:
        x, real = data
        rows = tf.shape(x)[0]
        both = tf.concat([real, self.generator(x)], axis=0)
        kinds = tf.concat([tf.ones((rows, 1)), tf.zeros((rows, 1))], axis=0)
        with tf.GradientTape() as tape:
            critic_loss = self.loss_function(kinds, self.critic(both))
        _apply(tape, critic_loss, self.critic, self.critic_optimizer)
        with tf.GradientTape() as tape:
            generator_loss = self.loss_function(tf.ones((rows, 1)), self(x))
        _apply(tape, generator_loss, self.generator, self.generator_optimizer)
        self.generator_loss.update_state(generator_loss, sample_weight=rows)
        self.critic_loss.update_state(critic_loss, sample_weight=rows)
        return {metric.name: metric.result() for metric in self.metrics}


def _apply(tape: Any, loss: Any, part: Any, optimizer: Any) -> None:
    variables = part.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


def _two_players(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(TwoPlayers())
        model.compile(
            generator_optimizer=adam(),
            critic_optimizer=sgd(clipnorm=0.1),
            loss_function=keras.losses.BinaryCrossentropy(from_logits=True),
        )
    data = {"x": X, "y": TARGETS, "batch_size": 24}
    outcome = observe_fit(model, data)
    outcome["optimizer"] = flat_arrays(
        [v.value for v in model.generator_optimizer.variables + model.critic_optimizer.variables]
    )
    return outcome


def _autoencoder() -> keras.Model:
    inputs = keras.Input((8,))
    hidden = keras.layers.Dense(4, activation="tanh")(inputs)
    shared = keras.layers.Dense(4, activation="tanh")
    return keras.Model(inputs, keras.layers.Dense(2)(shared(shared(hidden))))


def _accumulating() -> keras.optimizers.Optimizer:
    return adam(gradient_accumulation_steps=2)


CASES: dict[str, Case] = {
    "train_step and call set on the object": Case(_set_on_the_object),
    "compute_loss set on the object": Case(_loss_set_on_the_object),
    "functional model, shared layer": fitting(_autoencoder, regressing(), targeted(), evaluated=True),
    "sequential model, not built": fitting(
        lambda: keras.Sequential([keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(2)]),
        classifying(),
        labelled(),
        evaluated=True,
    ),
    "subclassed model, not built": fitting(
        lambda: Subclassed(normalised=True), classifying(), labelled(), evaluated=True
    ),
    "subclassed model without `training`": fitting(WithoutTraining, classifying(), labelled()),
    "own train_step, compute_loss": fitting(
        OwnTrainStep, classifying(lambda: sgd(clipnorm=0.05)), labelled(), evaluated=True
    ),
    "own train_step, sample weights": fitting(
        OwnTrainStep,
        classifying(lambda: sgd(learning_rate=0.002), loss=lambda: cross_entropy(reduction="sum")),
        labelled(sample_weight=WEIGHTS),
    ),
    "own train_step, loss object": fitting(LossObject, classifying(), labelled()),
    "own train_step, loss by hand": fitting(LossByHand, classifying(), labelled()),
    "own train_step, last batch smaller than N": fitting(LossObject, classifying(), labelled(FEWER_THAN_REPLICAS)),
    "own train_step, loss by hand, last batch smaller than N": fitting(
        LossByHand, classifying(), labelled(FEWER_THAN_REPLICAS)
    ),
    "own train_step, batch norm": fitting(
        lambda: OwnTrainStep(normalised=True),
        classifying(),
        labelled(),
    ),
    "own train_step, compute_loss, accumulation": fitting(OwnTrainStep, classifying(_accumulating), labelled()),
    "own train_step, loss object, accumulation": fitting(LossObject, classifying(_accumulating), labelled()),
    "own train_step, loss by hand, accumulation": fitting(LossByHand, classifying(_accumulating), labelled()),
    "own train_step, accumulation in variables": fitting(AccumulatesInVariables, classifying(), labelled(), epochs=3),
    "own train_step, steps_per_execution": fitting(LossObject, classifying(steps_per_execution=4), labelled()),
    "own compute_loss": fitting(OwnComputeLoss, classifying(), labelled(), evaluated=True),
    "own test_step": fitting(
        OwnTestStep, classifying(), lambda: {"x": X, "y": LABELS, "batch_size": 24}, evaluated=True
    ),
    "own predict_step": fitting(OwnPredictStep, classifying(), labelled(), evaluated=True),
    "two optimizers, own compile": Case(_two_players),
    "model of one layer": fitting(
        lambda: keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)]),
        classifying(),
        labelled(),
    ),
}
