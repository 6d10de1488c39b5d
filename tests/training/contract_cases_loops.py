"""Cases of the contract: loops by hand, outside of the scope and in `strategy.run`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.contract import GLOBAL_BATCH, Case, Outcome
from tests.training.models import TARGETS, X, adam, sgd

# Two full batches and one of 10, four on one of three replicas.
ROWS = 58
Step = Callable[[Any, Any], Any]


def _model() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [keras.Input((8,)), layers.Dense(4, activation="tanh", kernel_regularizer="l2"), layers.Dense(2)]
    )


def _loop_by_hand(dp: Any) -> Outcome:
    """The loop of Keras's guide, outside of the scope."""
    with dp.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
        optimizer, seen = adam(), keras.metrics.MeanAbsoluteError()
    results = []
    for start in range(0, ROWS, GLOBAL_BATCH):
        x, y = X[start : start + GLOBAL_BATCH], TARGETS[start : start + GLOBAL_BATCH]
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            loss = tf.reduce_mean(tf.square(y - y_pred))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        seen.update_state(y, y_pred)
        results.append(np.array(seen.result()))
    return {"weights": [np.array(each) for each in model.get_weights()], "batch logs": results}


def _in_run(
    loss_of: Callable[[Any, Any, int], Any],
    optimizer: Callable[[], Any] = sgd,
    gradients_of: Callable[[Any], Any] = lambda gradients: gradients,
    *,
    way: str = "traced",
) -> Case:
    """A loop in `strategy.run`.

    Args:
        loss_of: Of targets, outputs and the number of replicas, asked for outside: a replica's part of a sum.
        optimizer: Makes it.
        gradients_of: What becomes of the gradients before the optimizer gets them.
        way: "traced" is the loop as in a guide, "eager" without any `tf.function`; "given" and "inside" are eager loops
            whose step, or whose loss, is one; "epoch" is one with the loop over the data in it.
    """

    def run(dp: Any) -> Outcome:
        strategy = getattr(dp, "strategy", None)
        replicas = 1 if strategy is None else strategy.num_replicas_in_sync
        with dp.scope():
            model, updater, error = _model(), optimizer(), keras.metrics.MeanAbsoluteError()

        def term(y: Any, outputs: Any) -> Any:
            return loss_of(y, outputs, replicas)

        if way == "inside":
            term = tf.function(term, input_signature=[tf.TensorSpec((None, 2))] * 2)

        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                outputs = model(x, training=True)
                loss = term(y, outputs) + tf.nn.scale_regularization_loss(tf.add_n(model.losses))
            gradients = gradients_of(tape.gradient(loss, model.trainable_variables))
            updater.apply(gradients, model.trainable_variables)
            error.update_state(y, outputs)
            return loss, tf.reduce_mean(_per_example(y, outputs))

        if way == "given":
            step = tf.function(step)
        rows = tf.data.Dataset.from_tensor_slices((X[:ROWS], TARGETS[:ROWS])).batch(GLOBAL_BATCH)
        if strategy is None:
            logged = [step(x, y) for x, y in rows]
            logged = [np.sum(logged, axis=0)] if way == "epoch" else logged
        else:

            def distributed(x: Any, y: Any) -> Any:
                loss, mean = strategy.run(step, args=(x, y))
                mean = strategy.reduce(tf.distribute.ReduceOp.MEAN, mean, axis=None)
                return strategy.reduce("SUM", loss, axis=None), mean

            @tf.function
            def epoch(batches: Any) -> Any:
                total = tf.zeros(2)
                for x, y in batches:
                    total += tf.stack(distributed(x, y))
                return total

            call = tf.function(distributed) if way == "traced" else distributed
            data = strategy.experimental_distribute_dataset(rows)
            with warnings.catch_warnings():
                # TF's own note on every loop over distributed data in a `tf.function`.
                warnings.filterwarnings("ignore", "To make it possible to preserve tf.data options", UserWarning)
                logged = [epoch(data)] if way == "epoch" else [call(*batch) for batch in data]
        return {
            "weights": [np.array(each) for each in model.get_weights()],
            "optimizer": [np.array(each.value) for each in updater.variables],
            "batch logs": [np.array(logged), np.array(error.result())],
        }

    return Case(run)


def _per_example(y: Any, outputs: Any) -> Any:
    return tf.reduce_mean(tf.square(y - outputs), axis=-1)


def _over_global_batch(y: Any, outputs: Any, replicas: int) -> Any:
    # Of the last batch as well: what the tutorial does, on one device too.
    return tf.nn.compute_average_loss(_per_example(y, outputs), global_batch_size=GLOBAL_BATCH)


def _average(y: Any, outputs: Any, replicas: int) -> Any:
    return tf.nn.compute_average_loss(_per_example(y, outputs))


def _of_keras(y: Any, outputs: Any, replicas: int) -> Any:
    return keras.losses.MeanSquaredError()(y, outputs)


def _mean_asked_here(y: Any, outputs: Any, replicas: int) -> Any:
    return tf.reduce_mean(_per_example(y, outputs)) / tf.distribute.get_strategy().num_replicas_in_sync


def _mean_asked_outside(y: Any, outputs: Any, replicas: int) -> Any:
    return keras.ops.divide(tf.reduce_mean(_per_example(y, outputs)), replicas)


def _sum_over_rows(y: Any, outputs: Any, replicas: int) -> Any:
    values = _per_example(y, outputs)
    return tf.reduce_sum(values) / tf.cast(tf.shape(values)[0] * replicas, tf.float32)


CASES: dict[str, Case] = {
    "loop by hand, outside of the scope": Case(_loop_by_hand),
    "loop of TensorFlow's tutorial": _in_run(_over_global_batch),
    "loop, average_loss": _in_run(_average),
    "loop, average_loss, eagerly": _in_run(_average, way="eager"),
    "loop, average_loss, a tf.function is given": _in_run(_average, way="given"),
    "loop, average_loss, over data in a tf.function": _in_run(_average, way="epoch"),
    "loop, average_loss in a tf.function, eagerly": _in_run(_average, way="inside"),
    "loop, loss of Keras, clipnorm": _in_run(_of_keras, lambda: adam(clipnorm=0.01)),
    "loop, mean over replicas, clipvalue": _in_run(_mean_asked_here, lambda: sgd(clipvalue=0.01)),
    "loop, mean over replicas asked for outside": _in_run(_mean_asked_outside),
    "loop, sum over rows times replicas": _in_run(_sum_over_rows),
    "loop, accumulation, global_clipnorm": _in_run(
        _average, lambda: sgd(gradient_accumulation_steps=3, global_clipnorm=0.05)
    ),
    "loop, sum_gradients before clipping by hand": _in_run(
        _average,
        lambda: sgd(momentum=0.0),
        lambda gradients: tf.clip_by_global_norm(tfscale.sum_gradients(gradients), 0.05)[0],
    ),
}
