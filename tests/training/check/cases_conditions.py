"""Cases of layers that a step calls in the branches of a condition."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.training.check.cases_step_check import _data_parallel
from tests.training.contract_cases_anywhere import DATA
from tests.training.models import sgd


class Branches(keras.Model):
    """Calls layers in a `tf.cond`, assigns to one there, and needs the rows or the gradients of all replicas.

    Args:
        needs: `"gradients"`, which are clipped by hand, or `"rows"`, of which pairs are compared.
    """

    def __init__(self, needs: str) -> None:
        super().__init__()
        self.needs = needs
        self.first, self.second = keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(2)
        self.steps = tf.Variable(0, trainable=False)

    def call(self, inputs: Any) -> Any:
        return self.second(self.first(inputs))

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data

        def halved() -> Any:
            self.second.kernel.assign(self.second.kernel * 0.5)
            return self.second(self.first(x))

        with tf.GradientTape() as tape:
            outputs = tf.cond(tf.equal(self.steps % 2, 0), halved, lambda: self.second(tf.square(self.first(x))))
            loss = tf.reduce_mean(tf.square(y - outputs))
            if self.needs == "rows":
                loss += tf.reduce_mean(tf.square(tf.matmul(outputs, outputs, transpose_b=True)))
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        if self.needs == "gradients":
            gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
        self.optimizer.apply(gradients, variables)
        self.steps.assign_add(1)
        return {"loss": loss}


def branches(needs: str, num_replicas: int) -> list[np.ndarray]:
    """What is left of the weights after steps of 24, 24 and 2 rows."""
    dp = _data_parallel(num_replicas)
    with dp.scope():
        model = Branches(needs)
        model(DATA["x"][:1])
        model = dp.prepare(model)
        model.compile(sgd(learning_rate=0.05))
    model.fit(DATA["x"][:50], DATA["y"][:50], batch_size=24, epochs=1, verbose=0, shuffle=False)
    return list(model.get_weights())
