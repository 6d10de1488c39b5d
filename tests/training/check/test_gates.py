"""Steps that decide by a counter what they do, and steps of which nobody can tell whether they are equal."""

import numpy as np
import pytest

from tests.processes import run_case, run_workers
from tfscale.training.check.gates import counts_beside

CASES = "tests.training.check.cases_gates"
GATES = {
    "step two": 2,
    "the fourth of five": 3,
    "from 4 to 9": 4,
    "the second tenth": 20,
    "updates of the optimizer": 5,
    "epochs of a callback": 3,
    "a case": 2,
    "a count that begins with one": 3,
    "a count down": 0,
    "one of several counts": 6,
    "a table": 6,
    "a place of a table": 5,
    "a table of Keras's": 4,
}


def test_a_branch_that_is_taken_later_is_looked_at_before_anything_is_updated():
    said = run_case(f"{CASES}:gated", timeout_s=300)
    assert set(said) == {*GATES, "a flag"}
    for gate, text in said.items():
        assert "mixes the rows" in text or "not with other values of counters" in text, gate


def test_so_is_a_loss_whose_weight_begins_with_nothing():
    for begins, text in run_case(f"{CASES}:weighted_later", timeout_s=300).items():
        assert "mixes the rows" in text, begins


def test_a_graph_tells_what_it_compares_a_counter_with():
    found = run_case(f"{CASES}:values_compared")
    for gate, value in GATES.items():
        assert value in found[gate] or value in counts_beside(found[gate], ()), (gate, found[gate])


def test_no_more_counts_than_can_be_tried():
    assert counts_beside([0.0], ()) == [0, 1]
    assert counts_beside([-5.0, 1e30, float("inf")], ()) == []
    assert len(counts_beside([float(10 * each) for each in range(1, 20)], ())) == 12


def test_a_step_that_does_not_run_on_one_replica_is_refused():
    error, said, updates = run_case(f"{CASES}:runs_on_no_replica", args=("auto",))
    assert error.startswith("ParityError: The first step")
    assert "does not run on one replica" in error
    assert "this layer takes 12 rows" in error
    assert 'check="warn"' in error
    assert (said, updates) == ([], 0)


def test_or_trains_with_a_warning_on_request():
    error, said, updates = run_case(f"{CASES}:runs_on_no_replica", args=("warn",))
    assert (error, updates) == ("", 1)
    assert len(said) == 1
    assert "this layer takes 12 rows" in said[0]


def test_an_error_of_our_own_keeps_its_name():
    found = run_case(f"{CASES}:refuses_by_name")
    assert found.startswith("ModelError: ")
    assert "a cause of its own" in found


def test_classes_that_are_drawn_are_checked_as_other_random_numbers_are():
    assert run_case(f"{CASES}:sampled", args=("sgd", False)) == ("", [])


def test_rows_of_classes_that_all_replicas_draw_are_refused_by_their_cause():
    error, _ = run_case(f"{CASES}:sampled", args=("adam", False))
    assert "tf.convert_to_tensor(gradient)" in error
    assert "clipping" not in error


@pytest.mark.parametrize("often", [0.4, 0.1, 0.01])
def test_an_evaluation_in_which_a_draw_picks_the_batches_whose_rows_meet_is_divided_otherwise(often):
    losses, said = run_case(f"{CASES}:evaluated_at_random", args=(often,))
    assert len(said) == 1
    assert "the first step of an evaluation" in said[0]
    assert np.all(np.isfinite(losses))


def test_and_given_in_full_they_train():
    assert run_case(f"{CASES}:sampled", args=("adam", True)) == ("", [])


@pytest.mark.parametrize("case", ["fails_on_one_worker", "differs_on_one_worker"])
def test_what_is_found_on_one_worker_is_found_on_all(case):
    said = run_workers(f"{CASES}:{case}", num_workers=2, timeout_s=120)
    assert said[0] == said[1]
    assert "every replica gets all of them" in said[0]


def test_what_fails_while_it_runs_on_one_worker_ends_the_job():
    alone, other = sorted(run_workers(f"{CASES}:fails_while_it_runs", num_workers=2, args=(12,), timeout_s=60))
    assert alone.startswith("ClusterError: ")
    assert "ParityError: The first step of model" in alone
    assert other.startswith("ParityError: The first step of model")
    assert "too few" in other


def test_what_fails_while_it_runs_on_all_workers_may_be_divided_otherwise():
    assert run_workers(f"{CASES}:fails_while_it_runs", num_workers=2, args=(20,), timeout_s=60) == ["", ""]
