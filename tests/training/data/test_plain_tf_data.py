"""A plain `tf.data.Dataset` on several workers: what would give each worker an order of its own is said."""

import pytest

from tests.processes import run_workers

CASES = "tests.training.data.cases_data"


@pytest.mark.parametrize(("seed", "count"), [(None, 1), (3, 0)])
def test_shuffle_without_a_seed(seed, count):
    for warned in run_workers(f"{CASES}:unseeded", 2, args=("", seed)):
        assert len(warned) == count
        assert all("dp.dataset" in text for text in warned)
