"""The N = 1 contract on one replica and on two: the rows that test_contract_counts.py has on four alone."""

import pytest

from tests.training import contract_run
from tests.training.contract_rows import BY_COUNT, shown_cases

CASES = contract_run.load_cases()
NAMES = tuple(name for name in shown_cases() if name not in BY_COUNT)


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_equals_one_replica(results, num_replicas, name):
    contract_run.check(CASES[name], results(NAMES, num_replicas)[name])
