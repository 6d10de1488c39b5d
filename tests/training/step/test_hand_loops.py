"""What a loop by hand is given can be used as what it computes."""

from tests.processes import run_case, run_workers

CASE = "tests.training.step.cases_hand_loops:gathered"


def test_arguments_are_gathered_among_replicas():
    assert run_case(CASE, args=(3,)) == [0, 1, 2, 3]


def test_arguments_are_gathered_among_workers():
    assert run_workers(CASE, 2, args=(1,)) == [[0, 1, 2, 3]] * 2


def test_one_worker_alone_may_run_what_asks_for_nothing():
    found = run_workers("tests.training.step.cases_hand_loops:alone", 2, timeout_s=120)
    assert found == [4.0, None]
