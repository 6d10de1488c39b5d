"""The N = 1 contract: what the same script gives on one device, to float rounding."""

import importlib

import numpy as np
import pytest

from tests.repository import ROOT
from tests.training import contract_run
from tests.training.contract import relative_difference
from tests.training.contract_cases_optimizers import OPTIMIZERS, offered_optimizers
from tests.training.contract_rows import NUM_REPLICAS, ROWS, shown_cases

CASES = contract_run.load_cases()

# Three replicas divide neither a batch nor its rest: the whole table. The others: one case per row.
NAMES = {n: list(CASES) if n == 3 else shown_cases() for n in NUM_REPLICAS}


def _parameters():
    for num_replicas, names in NAMES.items():
        group = pytest.mark.xdist_group(f"contract-{num_replicas}")
        for name in names:
            known = CASES[name].known if num_replicas > 1 else ""
            marks = [group, pytest.mark.xfail(reason=known)] if known else [group]
            yield pytest.param(num_replicas, name, marks=marks, id=f"{num_replicas}-{name}")


@pytest.fixture(scope="module")
def results(tmp_path_factory, references):
    """Results by number of replicas; each number runs once, when first asked for."""
    found = {}

    def run(num_replicas):
        if num_replicas not in found:
            directory = tmp_path_factory.mktemp(f"contract{num_replicas}")
            found[num_replicas] = contract_run.run_on_replicas(NAMES[num_replicas], num_replicas, directory, references)
        return found[num_replicas]

    return run


@pytest.mark.parametrize(("num_replicas", "name"), list(_parameters()))
def test_equals_one_replica(results, num_replicas, name):
    case, result = CASES[name], results(num_replicas)[name]
    assert not result.error, result.error
    assert result.differences
    assert contract_run.beyond_tolerance(case, result) == {}


def test_every_optimizer_of_keras_is_covered():
    # OptimizerMap is no optimizer but the argument of MultiOptimizer.
    assert offered_optimizers() == set(OPTIMIZERS)


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
