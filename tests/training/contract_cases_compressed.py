"""Cases of the contract: with gradients in 16 bits, the same but for their rounding."""

from __future__ import annotations

import dataclasses

import tfscale
from tests.training.contract import Case
from tests.training.contract_cases_batches import CASES as BATCHES
from tests.training.contract_cases_losses import CASES as LOSSES
from tests.training.contract_cases_metrics import CASES as METRICS
from tests.training.contract_cases_micro import CASES as MICRO
from tests.training.contract_cases_models import CASES as MODELS
from tests.training.contract_cases_precision import CASES as PRECISION
from tests.training.contract_cases_updates import CASES as UPDATES

# Each part and each addition is rounded by up to half a unit in the last of 8 or 11 bits, 0.4 % or 0.05 %, and small
# numbers in float16 by more.
_TOLERANCES = {"bf16": 0.02, "fp16": 0.005}
# A row on the boundary of two classes may change sides, and is one of few in the accuracy of a batch.
_LOGS = {"history": 0.05, "batch logs": 0.2}
_ON_A_BOUNDARY = (("bf16", "masked sequence loss"), ("bf16", "embedding, sparse gradients and clipnorm"))

_ROWS = {
    "bf16": (
        (BATCHES, ("last batch uneven", "last batch smaller than N, batch norm", "data smaller than N")),
        (UPDATES, ("clipnorm", "global_clipnorm", "accumulation and EMA, by hand", "steps_per_execution")),
        (LOSSES, ("masked sequence loss", "mean_with_sample_weight", "embedding, sparse gradients and clipnorm")),
        (METRICS, ("metrics AUC, precision, recall",)),
        (PRECISION, ("LossScaleOptimizer, overflow on one replica",)),
        (MODELS, ("own train_step, loss by hand", "two optimizers, own compile")),
        (MICRO, ("micro-steps, last batch uneven",)),
    ),
    "fp16": (
        (BATCHES, ("last batch uneven",)),
        (UPDATES, ("clipnorm", "jit_compile")),
        (LOSSES, ("masked sequence loss",)),
        (PRECISION, ("LossScaleOptimizer, overflow on one replica",)),
    ),
}


def _compressed(case: Case, compression: str, name: str) -> Case:
    return dataclasses.replace(
        case,
        tolerance=max(case.tolerance, _TOLERANCES[compression]),
        tolerances=_LOGS if (compression, name) in _ON_A_BOUNDARY else {},
        options={**case.options, "network": tfscale.Network(compression=compression)},
    )


CASES = {
    f"{compression}, {name}": _compressed(cases[name], compression, name)
    for compression, tables in _ROWS.items()
    for cases, names in tables
    for name in names
}
