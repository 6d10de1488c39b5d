"""The N = 1 contract on other numbers of replicas: the case that stands for each row.

Every row is on four replicas here. On one and on two are those in which the number makes more of a difference than that
there are others; test_contract_other_counts.py has the rest, and test_workers.py has two replicas in two processes.
"""

import pytest

from tests.training import contract_run
from tests.training.contract_rows import BY_COUNT, shown_cases

CASES = contract_run.load_cases()
BY_REPLICAS = {4: tuple(shown_cases()), 2: BY_COUNT}


@pytest.mark.parametrize("name", BY_COUNT)
def test_one_replica_changes_nothing(results, name):
    contract_run.check(CASES[name], results(BY_COUNT, 1)[name])


@pytest.mark.parametrize(("name", "num_replicas"), [(name, n) for n, names in BY_REPLICAS.items() for name in names])
def test_equals_one_replica(results, name, num_replicas):
    contract_run.check(CASES[name], results(BY_REPLICAS[num_replicas], num_replicas)[name])


def test_rows_by_count_are_rows():
    assert set(BY_COUNT) < set(shown_cases())
