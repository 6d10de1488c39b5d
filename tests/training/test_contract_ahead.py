"""The N = 1 contract where each replica's rows are copied to it ahead of time, as on GPUs: the case of each row."""

import pytest

from tests.training import contract_run
from tests.training.contract_rows import shown_cases

CASES = contract_run.load_cases()
NAMES = tuple(shown_cases())


@pytest.fixture(scope="module")
def found(tmp_path_factory, references):
    """Of all cases."""
    return contract_run.run_on_replicas(NAMES, 3, tmp_path_factory.mktemp("ahead"), references, ahead=True)


@pytest.mark.parametrize("name", NAMES)
def test_equals_one_replica(found, name):
    contract_run.check(CASES[name], found[name])
