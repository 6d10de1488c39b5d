"""The N = 1 contract with several worker processes over TF_CONFIG; more cases are in test_contract_workers.py."""

import pytest

from tests.training import contract_run

NAMES = (
    "last batch uneven",
    "last batch smaller than N, batch norm",
    "data smaller than N",
    "accumulation and EMA, by hand",
    "steps_per_execution, chosen",
    "micro-steps, masked sequence loss",
    "run_eagerly",
    "gradients clipped by hand, beside a recurrent layer",
    "own train_step, loss by hand",
    "two optimizers, own compile",
    "input: generator",
    "validation_data, smaller than N",
    "shuffled, times seen",
    "gather_rows in a contrastive loss",
)
# The copies that the third worker has are found by other arithmetic than those of the second.
ON_THREE = (
    "last batch smaller than N, batch norm",
    "micro-steps, batch norm synchronised",
    "run_eagerly",
    "own train_step, loss by hand",
    "gather_rows in a contrastive loss",
)


@pytest.fixture(scope="module")
def worker_results(tmp_path_factory, references):
    """Results of both workers, by rank and name; the workers run once."""
    directory = tmp_path_factory.mktemp("workers")
    return contract_run.run_on_workers(NAMES, 2, directory, references)


@pytest.mark.parametrize("name", NAMES)
def test_workers_equal_one_replica(worker_results, name):
    contract_run.check_on_workers(worker_results, name)


def test_three_workers_equal_one_replica(tmp_path, references):
    results = contract_run.run_on_workers(ON_THREE, 3, tmp_path, references)
    for name in ON_THREE:
        contract_run.check_on_workers(results, name)
