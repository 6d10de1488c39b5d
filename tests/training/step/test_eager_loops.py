import pytest

from tests.processes import run_case, run_workers


@pytest.mark.parametrize(("num_replicas", "times"), [(1, 0), (2, 1)])
def test_a_loop_that_has_no_graph_is_said_once_not_to_be_looked_at(num_replicas, times):
    found = run_case("tests.training.step.cases_eager_loops:told", args=(num_replicas,))
    assert list(found.values()) == [0, 0, 0, times, times]


def _assert_equal(found):
    assert len(found) == 9
    for name, (ours, expected) in found.items():
        assert ours == pytest.approx(expected, rel=1e-5), name


@pytest.mark.parametrize("num_replicas", [2, 3])
def test_means(num_replicas):
    _assert_equal(run_case("tests.training.step.cases_eager_loops:means", args=(num_replicas,)))


def test_means_on_workers():
    for found in run_workers("tests.training.step.cases_eager_loops:means", 2, args=(1,)):
        _assert_equal(found)


def test_what_is_said_of_numbers():
    said = run_case("tests.training.step.cases_eager_loops:said_of_numbers", args=(3,))
    expected = {
        "own rows in a variable": "ModelError: In a loop by hand every variable must get what one replica would give",
        "counted": "ModelError: What is added up over the replicas must be a value of each of them.",
        "mean": "a loop that runs eagerly returns a number of each replica's own rows",
        "sum of what is alike": "ModelError: Of what is the same on all replicas the sum is several times",
    }
    for name, each in said.items():
        assert each.startswith(expected.get(name, "")), name
        assert bool(each) == (name in expected), (name, each)
