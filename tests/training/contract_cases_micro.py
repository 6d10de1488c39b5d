"""Cases of the contract: a replica's rows in micro-steps give what they give at once."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.training.contract import Case, Outcome, fitting, flat_arrays
from tests.training.contract_cases_batches import CASES as BATCHES
from tests.training.contract_cases_losses import CASES as LOSSES
from tests.training.contract_cases_metrics import CASES as METRICS
from tests.training.contract_cases_models import CASES as MODELS
from tests.training.contract_cases_precision import CASES as PRECISION
from tests.training.contract_cases_updates import CASES as UPDATES
from tests.training.models import TARGETS, X, classifying, labelled, mlp, normalised, sgd

# 24 rows are 8 for each of 3 replicas: parts of 2, 3 and 3; on one replica 8 parts.
_MICRO_BATCH = 3
_REPLICAS = 3

_AS_AT_ONCE = (
    BATCHES,
    ("last batch uneven", "last batch smaller than N", "data smaller than N", "batch norm, frozen"),
    UPDATES,
    ("clipnorm", "accumulation, Adam, clipnorm", "steps_per_execution", "jit_compile"),
    LOSSES,
    (
        "masked sequence loss",
        "masked sequence loss, a replica without entries",
        "mean_with_sample_weight",
        "reduction sum",
        "reduction None",
        "add_loss, mean and sum",
        "kernel_regularizer",
        "several inputs and outputs, last batch smaller than N",
        "embedding, sparse gradients and clipnorm",
    ),
    METRICS,
    ("metrics AUC, precision, recall",),
    PRECISION,
    ("LossScaleOptimizer, overflow on one replica",),
    MODELS,
    ("own compute_loss",),
)


def _in_micro_steps(case: Case, rows: int = _MICRO_BATCH) -> Case:
    return dataclasses.replace(case, options={"micro_batch": rows})


def _normalised(batch_norm: str) -> Case:
    """By hand, with the parts of three replicas: statistics of a part, or of the parts that are taken at one time."""
    rows, micro_batch, epochs = 8, 4, 2
    parts = [
        [range(replica * rows + start, replica * rows + start + micro_batch) for replica in range(_REPLICAS)]
        for start in (0, micro_batch)
    ]
    groups = (
        [np.concatenate(at_a_time) for at_a_time in parts]
        if batch_norm == "synchronized"
        else [np.array(part) for at_a_time in parts for part in at_a_time]
    )

    def build() -> keras.Model:
        return normalised(momentum=0.7)

    def by_hand(dp: Any) -> Outcome:
        model, optimizer = build(), sgd(clipnorm=0.2)
        moving = model.non_trainable_variables
        variables = model.trainable_variables
        optimizer.build(variables)
        for first in [*range(0, 240, 24)] * epochs:
            before = [np.array(variable) for variable in moving]
            sums = [np.zeros(variable.shape) for variable in variables]
            averages = [np.zeros(variable.shape) for variable in moving]
            for group in groups:
                for variable, value in zip(moving, before, strict=True):
                    variable.assign(value)
                with tf.GradientTape() as tape:
                    error = model(X[first + group], training=True) - TARGETS[first + group]
                    loss = tf.reduce_mean(tf.square(error)) * len(group) / 24
                for total, gradient in zip(sums, tape.gradient(loss, variables), strict=True):
                    total += gradient.numpy()
                for total, variable in zip(averages, moving, strict=True):
                    total += np.array(variable) * len(group) / 24
            optimizer.apply([tf.constant(total, "float32") for total in sums], variables)
            for variable, value in zip(moving, averages, strict=True):
                variable.assign(value)
        return {"weights": flat_arrays(model.get_weights())}

    def run(dp: Any) -> Outcome:
        with dp.scope():
            model = dp.prepare(build())
            model.compile(sgd(clipnorm=0.2), "mse")
        model.fit(X[:240], TARGETS[:240], batch_size=24, epochs=epochs, shuffle=False, verbose=0)
        return {"weights": flat_arrays(model.get_weights())}

    return Case(run, by_hand, batch_norm=batch_norm, options={"micro_batch": micro_batch})


CASES: dict[str, Case] = {
    **{
        f"micro-steps, {name}": _in_micro_steps(cases[name])
        for cases, names in zip(_AS_AT_ONCE[::2], _AS_AT_ONCE[1::2], strict=True)
        for name in names
    },
    "micro-steps of one row": _in_micro_steps(LOSSES["masked sequence loss, weighted"], 1),
    "micro-steps, one of all rows": _in_micro_steps(BATCHES["last batch uneven"], 8),
    "micro-steps, run_eagerly": _in_micro_steps(
        fitting(mlp, classifying(lambda: sgd(clipnorm=0.05), run_eagerly=True), labelled(100), epochs=1)
    ),
    "micro-steps, batch norm local": _normalised("local"),
    "micro-steps, batch norm synchronised": _normalised("synchronized"),
}
