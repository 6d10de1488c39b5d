"""Cases of the contract: clipping, accumulation, averages of weights, several steps per call, XLA."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from tests.training.contract import Case, Outcome, fitting, flat_arrays, observe_fit
from tests.training.models import (
    FEWER_THAN_REPLICAS,
    LABELS,
    X,
    adam,
    classifying,
    labelled,
    mlp,
    normalised,
    regressing,
    sgd,
    targeted,
)


def updating(optimizer: Any, rows: int = 250, **case: Any) -> Case:
    """The classifier with one optimizer."""
    return fitting(mlp, classifying(optimizer), labelled(rows), **case)


def _weights(dp: Any, optimizer: keras.optimizers.Optimizer) -> Outcome:
    """The weights after 22 micro-steps of `fit`."""
    with dp.scope():
        model = dp.prepare(mlp())
        model.compile(optimizer=optimizer(), loss="mse")
    model.fit(**targeted()(), epochs=2, verbose=0, shuffle=False)
    return {"weights": flat_arrays(model.get_weights())}


def _average_per_update(dp: Any, steps: int, momentum: float, rate: float) -> Outcome:
    """By hand: plain descent on the mean gradient of `steps` batches, the average moved at each update.

    Mini-batches of 24, 24, ... 10 rows; Keras gives every micro-step the same weight.
    """
    del dp
    model = mlp()
    loss = keras.losses.MeanSquaredError()
    variables = model.trainable_variables
    averages: list[np.ndarray] = []
    batches = [slice(start, start + 24) for _ in range(2) for start in range(0, 250, 24)]
    for first in range(0, len(batches) - steps + 1, steps):
        total = [np.zeros(variable.shape, "float32") for variable in variables]
        for rows in batches[first : first + steps]:
            gradients = _gradients(model, loss, targeted()()["x"][rows], targeted()()["y"][rows])
            total = [a + g for a, g in zip(total, gradients, strict=True)]
        for variable, gradient in zip(variables, total, strict=True):
            variable.assign(variable.value - rate * gradient / steps)
        moved = [np.array(variable.value) for variable in variables]
        # The average starts at the weights of the first update.
        averages = [
            momentum * average + (1 - momentum) * value for average, value in zip(averages or moved, moved, strict=True)
        ]
    # `fit` ends by putting the averages in the place of the weights.
    return {"weights": averages}


def _gradients(model: keras.Model, loss: Any, x: Any, y: Any) -> list[np.ndarray]:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        value = loss(y, model(x))
    return [np.array(gradient) for gradient in tape.gradient(value, model.trainable_variables)]


def _clipped_updates(dp: Any, steps: int, norm: float, rate: float) -> Outcome:
    """By hand: the mean gradient of `steps` batches, each array clipped to `norm`, then descent."""
    del dp
    model = mlp()
    loss = keras.losses.MeanSquaredError()
    data = targeted()()
    batches = [slice(start, start + 24) for _ in range(2) for start in range(0, 250, 24)]
    for first in range(0, len(batches) - steps + 1, steps):
        parts = [_gradients(model, loss, data["x"][rows], data["y"][rows]) for rows in batches[first : first + steps]]
        for variable, *arrays in zip(model.trainable_variables, *parts, strict=True):
            mean = np.sum(arrays, axis=0) / steps
            mean *= min(1.0, norm / np.linalg.norm(mean))
            variable.assign(variable.value - rate * mean)
    return {"weights": flat_arrays(model.get_weights())}


def _averaged() -> Case:
    def optimizer() -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(0.1, gradient_accumulation_steps=2, use_ema=True, ema_momentum=0.8)

    return Case(
        lambda dp: _weights(dp, optimizer),
        reference=lambda dp: _average_per_update(dp, steps=2, momentum=0.8, rate=0.1),
    )


def _accumulated_and_clipped() -> Case:
    def optimizer() -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(0.1, gradient_accumulation_steps=2, clipnorm=0.05)

    return Case(
        lambda dp: _weights(dp, optimizer),
        reference=lambda dp: _clipped_updates(dp, steps=2, norm=0.05, rate=0.1),
    )


def _frozen(model: keras.Model) -> keras.Model:
    model.layers[0].trainable = False
    return model


def _reduced_rate(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(mlp())
        model.compile(**classifying()())
    reduce = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / (epoch + 1))
    history = model.fit(x=X, y=LABELS, batch_size=24, epochs=3, verbose=0, shuffle=False, callbacks=[reduce])
    return {
        "weights": flat_arrays(model.get_weights()),
        "history": [np.array(history.history["learning_rate"])],
    }


def _chosen_steps() -> Case:
    """How many steps a call takes depends on the machine, and so do the batches that there are logs of."""

    def run(dp: Any) -> Outcome:
        with dp.scope():
            model = dp.prepare(normalised())
            model.compile(**classifying(adam)())
        outcome = observe_fit(model, {**labelled(245)(), "validation_data": (X, LABELS)}, epochs=8, evaluated=True)
        del outcome["batch logs"]
        return outcome

    return Case(run, options={"steps_per_execution": "always"})


CASES: dict[str, Case] = {
    "clipnorm": updating(lambda: sgd(clipnorm=0.05)),
    "global_clipnorm": updating(lambda: adam(global_clipnorm=0.05)),
    "clipvalue": updating(lambda: sgd(clipvalue=0.01)),
    "clipnorm, last batch smaller than N": updating(lambda: sgd(clipnorm=0.05), rows=FEWER_THAN_REPLICAS),
    "weight decay": updating(lambda: sgd(weight_decay=0.01)),
    "accumulation": updating(lambda: sgd(gradient_accumulation_steps=2)),
    "accumulation, Adam, clipnorm": updating(lambda: adam(gradient_accumulation_steps=2, clipnorm=0.1)),
    "accumulation over the end of an epoch": updating(
        lambda: adam(gradient_accumulation_steps=4), rows=FEWER_THAN_REPLICAS
    ),
    "accumulation and clipping, by hand": _accumulated_and_clipped(),
    "accumulation and EMA, by hand": _averaged(),
    "EMA": updating(lambda: sgd(use_ema=True, ema_momentum=0.9)),
    "EMA with overwriting": updating(lambda: sgd(use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=5)),
    "steps_per_execution": fitting(mlp, classifying(steps_per_execution=4), labelled(), evaluated=True),
    "steps_per_execution, last call partial, batch norm": fitting(
        normalised, classifying(steps_per_execution=4), labelled(245)
    ),
    "steps_per_execution dividing the epoch": fitting(mlp, classifying(steps_per_execution=5), labelled(240)),
    "steps_per_execution longer than the epoch": fitting(
        mlp, classifying(steps_per_execution=32), labelled(), evaluated=True
    ),
    "steps_per_execution, chosen": _chosen_steps(),
    "steps_per_execution and accumulation": fitting(
        mlp,
        classifying(lambda: sgd(gradient_accumulation_steps=3), steps_per_execution=4),
        labelled(),
    ),
    "jit_compile": fitting(mlp, classifying(lambda: sgd(clipnorm=0.05), jit_compile=True), labelled(), evaluated=True),
    "jit_compile, batch norm": fitting(normalised, classifying(jit_compile=True, steps_per_execution=3), labelled(245)),
    "run_eagerly": fitting(
        normalised,
        classifying(lambda: sgd(clipnorm=0.05), run_eagerly=True),
        labelled(58),
        evaluated=True,
    ),
    "run_eagerly, accumulation": fitting(
        mlp,
        classifying(lambda: sgd(gradient_accumulation_steps=2), run_eagerly=True),
        labelled(58),
    ),
    "learning-rate schedule": updating(
        lambda: sgd(learning_rate=keras.optimizers.schedules.CosineDecay(0.0, 20, warmup_target=0.2, warmup_steps=5))
    ),
    "learning rate set by a callback": Case(_reduced_rate),
    "frozen layer": fitting(lambda: _frozen(mlp()), classifying(lambda: sgd(clipnorm=0.05)), labelled()),
    "constraint": fitting(lambda: mlp(kernel_constraint=keras.constraints.UnitNorm()), classifying(), labelled()),
    "regression": fitting(mlp, regressing(), targeted()),
}
