"""Cases of the contract in float64, in which rounding settles nothing: what differs by more than 1e-11 is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras

from tests.training import (
    contract_cases_anywhere,
    contract_cases_batches,
    contract_cases_losses,
    contract_cases_metrics,
    contract_cases_models,
    contract_cases_updates,
)
from tests.training.contract import Case, Outcome

TOLERANCE = 1e-11
NAMES = {
    contract_cases_batches: ("last batch uneven", "last batch smaller than N, batch norm"),
    contract_cases_updates: ("clipnorm", "global_clipnorm", "accumulation", "EMA with overwriting"),
    contract_cases_losses: (
        "masked sequence loss",
        "mean_with_sample_weight",
        "reduction sum",
        "reduction None",
        "add_loss, mean and sum",
        "several inputs and outputs",
        "sample_weight",
        "embedding, sparse gradients and clipnorm",
    ),
    contract_cases_metrics: ("metrics AUC, precision, recall",),
    contract_cases_models: (
        "own train_step, loss object",
        "own train_step, loss by hand",
        "own train_step, batch norm",
        "two optimizers, own compile",
    ),
    # Without those whose loss was made in float32, when their module was imported.
    contract_cases_anywhere: (
        "losses made on the spot, in a step",
        "loss vector given to the tape",
        "sum_over_examples beside a mean",
        "gather_rows in a contrastive loss",
        "add_loss in training only, zero at first, sums and means",
        "positions, Adam",
    ),
}


def _in_float64(case: Case) -> Case:
    def run(dp: Any) -> Outcome:
        before = keras.config.floatx(), keras.config.dtype_policy()
        keras.config.set_floatx("float64")
        keras.config.set_dtype_policy("float64")
        try:
            return case.run(dp)
        finally:
            keras.config.set_floatx(before[0])
            keras.config.set_dtype_policy(before[1])

    return dataclasses.replace(case, run=run, tolerance=TOLERANCE, tolerances={})


CASES = {
    f"{name}, in float64": _in_float64(table.CASES[name])
    for table, names in NAMES.items()
    for name in names
    if table.CASES[name].reference is None
}
