"""Cases of the contract: a `tf.function` of the user's that a step calls, and that TensorFlow could hand out again."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

import tfscale
from tests.training.contract import Case
from tests.training.contract_cases_anywhere import FEWER, OwnStep, own_step

# Of any number of rows: it is traced once, unless something else has it traced anew.
_ANY = [tf.TensorSpec((None, size)) for size in (8, 2)]


class SumInFunction(OwnStep):
    """A loss that is a sum, which a replica weights by its part of the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.kept["loss"] = keras.losses.MeanSquaredError(reduction="sum")

    @tf.function(input_signature=_ANY)
    def gradients_of(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x))
        return loss, tape.gradient(loss, self.trainable_variables)

    def train_step(self, data: Any) -> Any:
        loss, gradients = self.gradients_of(*data)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


class WeightedInFunction(SumInFunction):
    """A loss whose denominator the replicas add up, from inside of the function."""

    @tf.function(input_signature=_ANY)
    def gradients_of(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x), sample_weight=tf.abs(y[:, 0]))
        return loss, tape.gradient(loss, self.trainable_variables)


class UpdateInFunction(SumInFunction):
    """The whole step but for what it returns."""

    @tf.function
    def update(self, x: Any, y: Any) -> Any:
        loss, gradients = self.gradients_of(x, y)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return loss

    def train_step(self, data: Any) -> Any:
        return {"loss": self.update(*data)}


class MetricsInFunction(SumInFunction):
    """Metrics of rows and of a number, in a function."""

    def __init__(self) -> None:
        super().__init__()
        self.error = keras.metrics.MeanAbsoluteError(name="error")

    @tf.function(input_signature=_ANY)
    def gradients_of(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = self(x)
            loss = tf.reduce_mean(tf.square(y - outputs))
        self.tracker.update_state(loss)
        self.error.update_state(y, outputs)
        return loss, tape.gradient(loss, self.trainable_variables)

    def train_step(self, data: Any) -> Any:
        super().train_step(data)
        return {"tracked": self.tracker.result(), "error": self.error.result()}


class CentredInFunction(SumInFunction):
    """Rows that meet, in a function."""

    @tf.function(input_signature=_ANY)
    def gradients_of(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = self(x)
            loss = tf.reduce_mean(tf.square(y - outputs + tf.reduce_mean(outputs, axis=0)))
        return loss, tape.gradient(loss, self.trainable_variables)


class GatheringInFunction(SumInFunction):
    """As above, told so; a function of the rows of all replicas is called by another one."""

    @tf.function(reduce_retracing=True)
    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        outputs, targets = tfscale.gather_rows(y_pred), tfscale.gather_rows(y)
        return tf.reduce_mean(tf.square(targets - outputs + tf.reduce_mean(outputs, axis=0)))

    @tf.function
    def gradients_of(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.loss_of(x, y, self(x))
        return loss, tape.gradient(loss, self.trainable_variables)


_SUM = keras.losses.MeanSquaredError(reduction="sum")
_WEIGHTED = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")

CASES: dict[str, Case] = {
    "tf.function in a step, a sum": own_step(SumInFunction, data=FEWER, loss=_SUM),
    "tf.function in a step, a sum, run_eagerly": own_step(SumInFunction, data=FEWER, loss=_SUM, run_eagerly=True),
    "tf.function in a step, weights": own_step(WeightedInFunction, data=FEWER, loss=_WEIGHTED),
    "tf.function in a step, with the update": own_step(UpdateInFunction, data=FEWER, loss=_SUM),
    "tf.function in a step, metrics": own_step(MetricsInFunction, data=FEWER),
    "tf.function in a step, metrics, run_eagerly": own_step(MetricsInFunction, data=FEWER, run_eagerly=True),
    "tf.function in a step, rows that meet": own_step(CentredInFunction, data=FEWER),
    "tf.function in a step, gather_rows": own_step(GatheringInFunction, data=FEWER),
}
