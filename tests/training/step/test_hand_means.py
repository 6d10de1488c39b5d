"""Is the mean over replicas that a loop by hand asks for that of the batch, wherever it asks?"""

import pytest

from tests.processes import run_case, run_workers
from tests.training.step.cases_hand_means import ALONE, REDUCED


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_means(replicas):
    missed = run_case("tests.training.step.cases_hand_means:means", args=(replicas,), timeout_s=120)
    assert {name: by for name, by in missed.items() if by > 1e-6} == {}


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_losses_of_a_batch_that_is_smaller_than_the_number_of_replicas(rows):
    missed = run_case("tests.training.step.cases_hand_means:of_no_rows", args=(rows, 3), timeout_s=120)
    assert {name: by for name, by in missed.items() if abs(by) > 1e-6} == {}


def test_losses_of_a_batch_that_leaves_a_worker_without_rows():
    for missed in run_workers("tests.training.step.cases_hand_means:of_no_rows", 2, args=(1,)):
        assert {name: by for name, by in missed.items() if abs(by) > 1e-6} == {}


def test_means_on_workers():
    # TensorFlow gives a lone replica's results as they are: what is no known mean says nothing of its rows.
    untold = {"that a loop adds up", "of what became of it", "of no rows"}
    for missed, said in run_workers("tests.training.step.cases_hand_means:on_workers", 3):
        assert {name: by for name, by in missed.items() if by > 1e-6 and name not in untold} == {}
        (warning,) = said
        assert "counts each worker alike" in warning


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_mean_of_parts_and_a_sum_of_means_are_refused(replicas):
    _assert_exact_or_named(run_case("tests.training.step.cases_hand_means:reduced", args=(replicas,)))


def test_so_they_are_on_workers():
    for found in run_workers("tests.training.step.cases_hand_means:reduced", 2, args=(1,)):
        _assert_exact_or_named(found)


def _assert_exact_or_named(found):
    for name, each in found.items():
        number, op, _ = name.rsplit(", ", 2)
        if op == REDUCED[number][1]:
            assert not isinstance(each, str), name
            assert each < 1e-5, name
        else:
            assert f'Write `strategy.reduce("{REDUCED[number][1]}", ...)`' in str(each), name


@pytest.mark.parametrize("replicas", [2, 3])
def test_that_of_one_replica_alone_is_named(replicas):
    for name, said in run_case("tests.training.step.cases_hand_means:taken_alone", args=(replicas,)).items():
        number, way, place = name.split(", ")
        expected = ALONE[number][1] if way in {"local results", "last", "values"} else ""
        # In a graph nothing tells whether the others have something else.
        expected = "" if (expected, place) == ("warning", "inside") else expected
        assert said.split(":")[0] == expected, (name, said)
        assert ("strategy.reduce" in said) == bool(expected), said


def test_so_it_is_on_workers():
    for found in run_workers("tests.training.step.cases_hand_means:taken_alone", 2, args=(1,)):
        for place in ("inside", "outside"):
            said = {name.split(",")[0]: each.split(":")[0] for name, each in found.items() if name.endswith(place)}
            assert said == {name: "error" if expected == "error" else "" for name, (_, expected) in ALONE.items()}


# What TensorFlow says of a loop over data in a `tf.function`.
@pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")
def test_what_a_worker_reads_of_its_own_rows_is_named():
    for found in run_workers("tests.training.step.cases_hand_means:read_on_worker", 2):
        for name, said in found.items():
            number, way = name.split(", ", 1)
            expected = "error" if ALONE[number][1] == "error" and way != "in a replica" else ""
            assert said.split(":")[0] == expected, (name, said)
            assert ("strategy.reduce" in said) == bool(expected), said
