"""The N = 1 contract, second half: data, calls, micro-steps, replicas and whole programs."""

import pytest

from tests.training import contract_run

CASES = contract_run.load_cases(contract_run.TABLES[contract_run.HALF :])
NAMES = tuple(CASES)
NUM_REPLICAS = 3


@pytest.mark.parametrize("name", NAMES)
def test_equals_one_replica(results, name):
    contract_run.check(CASES[name], results(NAMES, NUM_REPLICAS)[name])
