"""The N = 1 contract: what the same script gives on one device, to float rounding."""

import importlib

import keras
import numpy as np
import pytest

from tests.repository import ROOT
from tests.training import contract_cases_layers, contract_cases_measures, contract_run
from tests.training.contract import relative_difference
from tests.training.contract_cases_optimizers import BROKEN, NEW, OPTIMIZERS, offered_optimizers
from tests.training.contract_rows import ROWS

CASES = contract_run.load_cases()
# The other half is in test_contract_programs.py, which another process of pytest takes.
NAMES = tuple(contract_run.load_cases(contract_run.TABLES[: contract_run.HALF]))

# Divides neither the batches nor what is left of them at the end.
NUM_REPLICAS = 3


@pytest.mark.parametrize("name", NAMES)
def test_equals_one_replica(results, name):
    contract_run.check(CASES[name], results(NAMES, NUM_REPLICAS)[name])


def test_every_optimizer_of_keras_is_covered():
    # OptimizerMap is no optimizer but the argument of MultiOptimizer.
    assert offered_optimizers() <= set(OPTIMIZERS)
    assert set(OPTIMIZERS) - offered_optimizers() <= NEW | BROKEN


def test_every_layer_of_keras_is_covered():
    covered = contract_cases_layers.covered_layers()
    left_out = contract_cases_layers.OTHERS | contract_cases_layers.CHOOSING
    assert not covered & left_out
    assert contract_cases_layers.offered_layers() <= covered | left_out


def test_every_loss_of_keras_is_covered():
    covered = contract_cases_measures.covered(contract_cases_measures.LOSSES) | set(contract_cases_measures.ALONE)
    assert contract_cases_measures.offered(keras.losses, keras.losses.Loss) <= covered | contract_cases_measures.OTHERS


def test_every_metric_of_keras_is_covered():
    covered = contract_cases_measures.covered(contract_cases_measures.METRICS)
    assert (
        contract_cases_measures.offered(keras.metrics, keras.metrics.Metric) <= covered | contract_cases_measures.OTHERS
    )


def test_rows_name_cases_and_tests_that_exist():
    for row in ROWS:
        assert set(row.cases) <= set(CASES)
        path, _, function = row.test.partition("::")
        assert (ROOT / path).exists()
        module = path.removesuffix(".py").replace("/", ".")
        assert callable(getattr(importlib.import_module(module), function))


def test_every_table_is_run():
    files = ROOT.glob("tests/training/contract_cases_*.py")
    found = {path.stem.removeprefix("contract_cases_") for path in files}
    assert found == set(contract_run.TABLES)


@pytest.mark.parametrize(
    ("ours", "reference", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([0.0], [0.0], 0.0),
        ([1e-12], [0.0], 1e-6),
        ([np.nan], [np.nan], 0.0),
        ([np.nan], [1.0], np.inf),
        ([np.inf], [-np.inf], np.inf),
        ([1.0], [1.0, 1.0], np.inf),
        ([], [], 0.0),
        (["a"], ["a"], 0.0),
        (["a"], ["b"], np.inf),
    ],
)
def test_relative_difference(ours, reference, expected):
    found = relative_difference(np.array(ours), np.array(reference))
    assert found == pytest.approx(expected)
