"""The N = 1 contract on other numbers of replicas: the case that stands for each row."""

import pytest

from tests.training import contract_run
from tests.training.contract_rows import shown_cases

CASES = contract_run.load_cases()
NAMES = tuple(shown_cases())


@pytest.mark.parametrize("name", NAMES)
def test_one_replica_changes_nothing(results, name):
    contract_run.check(CASES[name], results(NAMES, 1)[name])


@pytest.mark.parametrize("num_replicas", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_equals_one_replica(results, num_replicas, name):
    contract_run.check(CASES[name], results(NAMES, num_replicas)[name])
