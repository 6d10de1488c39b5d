"""The rows of the N = 1 contract, as docs/contract.md shows them, each with what proves it.

The first case of a row runs on 1, 2, 3 and 4 replicas, the others on 3; it is the one that the
its table shows. Of the first cases `make test` has all on 4, and those of `BY_COUNT` on 1 and 2.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.training import contract_cases_float64


class Row(NamedTuple):
    """One promise.

    Args:
        title: As in the table; Markdown.
        cases: Names of cases in `contract_cases_*.py`.
        test: The test that proves it, "path::function".
    """

    title: str
    cases: tuple[str, ...]
    test: str = "tests/training/test_contract_counts.py::test_equals_one_replica"


ROWS = (
    Row("batches that divide evenly", ("even batches",)),
    Row(
        "several workers (`MultiWorkerMirroredStrategy` and `fit`)",
        ("last batch uneven",),
        "tests/training/test_workers.py::test_workers_equal_one_replica",
    ),
    Row("last batch uneven", ("last batch uneven", "batch not divisible by N")),
    Row(
        "last batch smaller than N, with BatchNormalization",
        ("last batch smaller than N, batch norm", "last batch smaller than N"),
    ),
    Row("first batch uneven", ("first batch uneven", "data smaller than N")),
    Row("`clipnorm`", ("clipnorm", "clipnorm, last batch smaller than N")),
    Row("`global_clipnorm`", ("global_clipnorm",)),
    Row("`clipvalue`", ("clipvalue",)),
    Row(
        "`gradient_accumulation_steps`",
        ("accumulation", "accumulation over the end of an epoch"),
    ),
    Row(
        "`use_ema` with `gradient_accumulation_steps`: moves once per update",
        ("accumulation and EMA, by hand",),
    ),
    Row("`use_ema` with `ema_overwrite_frequency`", ("EMA with overwriting", "EMA")),
    Row(
        "`steps_per_execution` > 1",
        ("steps_per_execution", "steps_per_execution longer than the epoch"),
    ),
    Row("`jit_compile=True`", ("jit_compile", "jit_compile, batch norm")),
    Row("`run_eagerly=True`", ("run_eagerly",)),
    Row("masks", ("masked sequence loss", "masked sequence loss, a replica without entries")),
    Row("loss reduction `mean_with_sample_weight`", ("mean_with_sample_weight",)),
    Row("loss reduction `sum`", ("reduction sum",)),
    Row("loss reduction `None`", ("reduction None",)),
    Row(
        "loss functions that return one number",
        ("scalar loss function, ratio", "scalar loss function, sum"),
    ),
    Row("`add_loss`, a mean over examples", ("add_loss, mean",)),
    Row("`add_loss`, a sum over examples", ("add_loss, sum", "add_loss, mean and sum")),
    Row("several inputs and outputs, loss weights", ("several inputs and outputs",)),
    Row("`sample_weight`, `class_weight`", ("sample_weight", "class_weight")),
    Row("metrics in the logs of each batch", ("metrics AUC, precision, recall",)),
    Row(
        "BatchNormalization, synchronised: moving statistics",
        ("batch norm", "batch norm, masked and nested"),
    ),
    Row(
        "BatchNormalization, local: moving statistics averaged over replicas",
        ("batch norm, local",),
    ),
    Row("Dropout, noise, augmentation: a stream per replica", ("dropout on each replica",)),
    Row("sparse gradients with `clipnorm`", ("embedding, sparse gradients and clipnorm",)),
    Row(
        "`LossScaleOptimizer`, a step skipped by all or none",
        ("LossScaleOptimizer, overflow on one replica", "LossScaleOptimizer"),
    ),
    Row("`mixed_float16`", ("mixed_float16",)),
    Row("own `train_step`, `compute_loss`", ("own train_step, compute_loss",)),
    Row("own `train_step`, loss by hand", ("own train_step, loss by hand",)),
    Row("two optimizers, own `compile`", ("two optimizers, own compile",)),
    Row(
        "unseeded `shuffle` on several workers: every example once per epoch",
        ("shuffled, times seen",),
        "tests/training/test_workers.py::test_workers_equal_one_replica",
    ),
    Row("`BackupAndRestore` in mid-epoch, here `Recovery`: continues at the very step", ("interrupted, times seen",)),
    Row("`train_on_batch` and the like", ("train, test and predict on batch",)),
    Row("`evaluate` and `predict`, any batch", ("evaluate and predict, any batch",)),
)

# The number of replicas matters more than that there are several: rows are shared out unevenly or not at all, means are
# taken over replicas, numbers are drawn on each, one replica decides for all, or one replica has a way of its own.
BY_COUNT = (
    "last batch uneven",
    "last batch smaller than N, batch norm",
    "first batch uneven",
    "accumulation and EMA, by hand",
    "masked sequence loss",
    "scalar loss function, ratio",
    "metrics AUC, precision, recall",
    "batch norm, local",
    "dropout on each replica",
    "LossScaleOptimizer, overflow on one replica",
    "own train_step, loss by hand",
    "evaluate and predict, any batch",
)


def rows_in_float64() -> tuple[Row, ...]:
    """The contract in double precision has a table of its own."""
    test = "tests/training/test_contract_programs.py::test_equals_one_replica"
    return tuple(Row(name.removesuffix(", in float64"), (name,), test) for name in contract_cases_float64.CASES)


def shown_cases() -> list[str]:
    """The first case of every row."""
    return list(dict.fromkeys(row.cases[0] for row in ROWS))
