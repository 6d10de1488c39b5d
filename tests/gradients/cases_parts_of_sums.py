"""Run in a fresh process: parts of a sum in loops by hand, and what is added to them or made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.gradients.cases_by_hand import LOSSES, all_reduced, count_replicas, differences, trained, trained_by

Added = Callable[[Any, Any], Any]


def _noise(gradient: Any, _: Any) -> Any:
    return tf.random.stateless_normal(gradient.shape, [3, 4])


def _adding(term: Added) -> Callable[[Any, Any], Any]:
    return lambda gradients, weights: [
        gradient + term(gradient, weight) for gradient, weight in zip(gradients, weights, strict=True)
    ]


# What is added to gradients, of a loss that is a part of a sum; and whether it is refused, as no replica divides it.
ADDED: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "weights that decay": (_adding(lambda gradient, weight: 0.05 * weight), True),
    "kernels that decay": (_adding(lambda gradient, weight: 0.05 * weight if len(weight.shape) > 1 else 0.0), True),
    "the signs of weights": (_adding(lambda gradient, weight: -0.05 * tf.sign(tf.convert_to_tensor(weight))), True),
    "the way to others": (_adding(lambda gradient, weight: 0.1 * (weight - tf.ones_like(gradient))), True),
    "a number": (_adding(lambda gradient, weight: 0.05), True),
    "noise of a seed": (_adding(_noise), True),
    "scaled noise of a seed": (_adding(lambda gradient, weight: 0.1 * _noise(gradient, weight)), True),
    "noise of each replica": (_adding(lambda gradient, weight: 0.1 * tf.random.normal(gradient.shape)), True),
    "over replicas": (_adding(lambda gradient, weight: 0.05 * weight / count_replicas()), False),
    "over as many as there are": (_adding(lambda gradient, weight: 0.05 / count_replicas() * weight), False),
    "all over replicas": (
        lambda gradients, weights: [
            (count_replicas() * gradient + 0.05 * weight) / count_replicas()
            for gradient, weight in zip(gradients, weights, strict=True)
        ],
        False,
    ),
    "noise over replicas": (_adding(lambda gradient, weight: _noise(gradient, weight) / count_replicas()), False),
    "to their sum": (
        lambda gradients, weights: _adding(lambda _, weight: 0.05 * weight)(tfscale.sum_gradients(gradients), weights),
        False,
    ),
    "nothing": (_adding(lambda gradient, weight: tf.zeros_like(weight)), False),
    "weights by nothing": (_adding(lambda gradient, weight: 0.0 * weight), False),
}


def added(replicas: int) -> dict[str, float | str]:
    """As `ways`, of what is added to gradients."""

    def train(strategy: Any, batch: Any, name: str) -> np.ndarray:
        return trained(strategy, batch, ADDED[name][0])

    return differences(replicas, ADDED, train)


# A loss, of whose gradients a replica asks its context for the mean; and whether it is refused.
AVERAGED: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "mean": (tf.reduce_mean, False),
    "mean by the rows of its shape": (LOSSES["mean by the rows of its shape"][0], False),
    "a tenth of a mean": (LOSSES["a tenth of a mean"][0], False),
    "mean over replicas": (LOSSES["mean over replicas"][0], True),
    "average": (LOSSES["average"][0], True),
    "average over the batch": (LOSSES["average over the batch"][0], True),
    "sum": (tf.reduce_sum, True),
}


# Of a scalar weight, a loss, and whether it is refused.
SCALARS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "times a part": (lambda own, scale: tf.exp(scale) * tf.reduce_sum(own) / 11.0, False),
    "times a part, less a number": (lambda own, scale: tf.exp(scale) * (tf.reduce_sum(own) / 11.0 - 0.5), True),
    "less a number over replicas": (
        lambda own, scale: tf.exp(scale) * (tf.reduce_sum(own) / 11.0 - 0.5 / count_replicas()),
        False,
    ),
    "times each, less a number": (
        lambda own, scale: tf.nn.compute_average_loss(tf.exp(scale) * (own - 0.5), global_batch_size=11),
        False,
    ),
    "a mean, less a number, over replicas": (
        lambda own, scale: tf.exp(scale) * (tf.reduce_mean(own) - 0.5) / count_replicas(),
        False,
    ),
}
# What a function returns beside its part of a sum.
RETURNED: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "a part": (lambda own: tf.reduce_sum(own) / 11.0, False),
    "a part and a number": (lambda own: tf.reduce_sum(own) / 11.0 + 0.5, True),
    "a part and nothing": (lambda own: tf.reduce_sum(own) / 11.0 + 0.0, False),
    "a part and a number over replicas": (lambda own: tf.reduce_sum(own) / 11.0 + 0.5 / count_replicas(), False),
    "a part and a mean": (lambda own: tf.nn.compute_average_loss(own) + 0.5 * tf.reduce_mean(own**2), True),
    "a part, a mean and a number": (lambda own: tf.reduce_sum(own) / 11.0 - tf.reduce_mean(own**2) + 0.5, True),
    "a part and a mean over replicas": (
        lambda own: tf.reduce_sum(own) / 11.0 + 0.5 * tf.reduce_mean(own**2) / count_replicas(),
        False,
    ),
}


def scalars(replicas: int) -> dict[str, float | str]:
    """As `losses`, of a weight that is a number, and of what a function returns."""

    def train(strategy: Any, batch: Any, name: str) -> Any:
        with strategy.scope():
            scale = keras.Variable(0.3)
            optimizer = keras.optimizers.SGD(0.1)
            optimizer.build([scale])

        def step(x: Any, y: Any) -> Any:
            own = tf.reduce_mean(tf.square(y - x[:, :2]), -1)
            if name in RETURNED:
                return RETURNED[name][0](own)
            with tf.GradientTape() as tape:
                loss = SCALARS[name][0](own, scale.value)
            optimizer.apply([tape.gradient(loss, scale.value)], [scale])
            return tf.zeros(())

        run = tf.function(lambda *args: strategy.reduce("SUM", strategy.run(step, args=args), axis=None))
        returned = run(*batch)
        return np.array(scale) if name in SCALARS else np.array(returned)

    return differences(replicas, SCALARS | RETURNED, train)


def averaged(replicas: int, shapes: str) -> dict[str, float | str]:
    """As `losses`, of gradients of which the mean is taken by hand."""

    def train(strategy: Any, batch: Any, name: str) -> np.ndarray:
        mean = all_reduced("MEAN") if isinstance(batch[0], tf.distribute.DistributedValues) else None
        return trained_by(strategy, batch, AVERAGED[name][0], shapes, change=mean)

    return differences(replicas, AVERAGED, train)
