"""Workers that no longer hold one model are told at the end of the epoch, whoever has said nothing of a watch."""

import re

import pytest

from tests.processes import run_workers


@pytest.fixture(scope="module", params=[2, 3])
def by_rank(request):
    return run_workers("tests.training.callbacks.cases_epoch_ends:fits", request.param)


@pytest.mark.parametrize("name", ["rate", "rate, beside a watch", "weights", "rate, in a list"])
def test_what_one_worker_alone_has_set_ends_all(by_rank, name):
    [(error, logged)] = {(error, tuple(logged)) for error, logged in (found[name] for found in by_rank)}
    assert error.startswith("The weights of all replicas must be equal.\nReceived: at the end of epoch 1")
    assert "replica 1 (worker 1)" in error
    assert "of its largest value" in error
    assert not logged


@pytest.mark.parametrize("name", ["nothing", "tolerated"])
def test_equal_workers_and_a_chosen_tolerance_train(by_rank, name):
    for found in by_rank:
        assert found[name][0] == ""
        assert (found[name][1] == []) == (name == "nothing")


def test_rounding_is_told_once(by_rank):
    for found in by_rank:
        error, [logged] = found["rounding"]
        assert not error
        assert "at the end of epoch 1, replica 1 (worker 1) differs from replica 0 (worker 0)" in logged
        assert len(re.findall(r"/(?:kernel|bias) by 0\.0001 of its largest value", logged)) == 3
        assert "and 1 more weights" in logged


def test_who_is_late_at_the_end_of_an_epoch_is_named():
    chief, _ = run_workers("tests.training.callbacks.cases_epoch_ends:late", 2)
    assert [said for said in chief if "step 13 of this fit takes longer than 1 s. Not arrived: worker 1 " in said]
    assert "The step goes on." in chief
