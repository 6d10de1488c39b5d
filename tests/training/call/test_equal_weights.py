"""Weights that are other ones on one worker end the call that begins with them, before anything is computed."""

import pytest

from tests.processes import run_workers

CALLS = ["fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"]


@pytest.fixture(scope="module")
def by_rank():
    return run_workers("tests.training.call.cases_equal_weights:calls", 2)


@pytest.mark.parametrize("name", CALLS)
def test_weights_of_one_worker_alone_are_refused(by_rank, name):
    for found in by_rank:
        said, is_untouched = found[f"{name}, by one"]
        assert said.startswith("The weights of all replicas must be equal.")
        assert f"as `{name}` begins, replica 1 (worker 1) differs from replica 0 (worker 0)" in said
        assert is_untouched


@pytest.mark.parametrize("name", CALLS)
def test_weights_that_all_have_are_taken(by_rank, name):
    assert [found[f"{name}, by all"][0] for found in by_rank] == ["no error"] * 2
