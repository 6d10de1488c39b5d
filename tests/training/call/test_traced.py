import numpy as np
import pytest

from tests.processes import run_case

TRAINED = "tests.training.call.cases_traced:trained"
LOOKED_UP = "tests.training.call.cases_traced:looked_up"


def test_graphs_that_are_left_alone_compute_the_same():
    optimised, alone = (run_case(TRAINED, args=(most, ("CPU", "CPU"))) for most in (10**9, 10))
    # Of `fit`, `evaluate` and `predict`.
    assert (optimised["left alone"], alone["left alone"]) == (0, 3)
    for name in ("loss", "val_loss", "predictions"):
        np.testing.assert_allclose(alone[name], optimised[name], rtol=1e-5, atol=1e-6)
    for one, other in zip(alone["weights"], optimised["weights"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_one_replica_is_optimised_as_by_keras():
    assert run_case(TRAINED, args=(10, ("CPU",)))["left alone"] == 0


def test_the_trace_that_goes_with_an_iterator_is_held():
    found = run_case("tests.training.call.cases_traced:held")
    # The first call with an iterator looks for the trace, and so does the first with a number of steps.
    assert [found[name] for name in ("0", "1", "2")] == [(False, 1), (True, 2), (True, 3)]
    assert [found[f"several {index}"] for index in range(3)] == [(False, 4 * 2), (True, 5 * 3), (True, 6 * 4)]
    assert found["alone again"] == (True, 7)
    # TensorFlow is asked as soon as it might do something else.
    assert found["eager"] == (False, 8)
    assert [found[name] for name in ("another", "another 1", "back")] == [(False, 1), (True, 2), (False, 9)]
    assert found["nothing keeps the iterator"]
    assert found["a batch"]
    # One step, several steps, and the one that was not traced.
    assert found["traces"] == 3


@pytest.mark.parametrize("num_replicas", [1, 3])
def test_a_held_trace_computes_the_same_to_the_bit(num_replicas):
    held, looked_up = (run_case(LOOKED_UP, args=(holds, num_replicas)) for holds in (True, False))
    assert held["found"] == looked_up["found"]
    assert held["calls"] == looked_up["calls"]
    assert held["held"] > held["calls"] / 2
    assert looked_up["held"] == 0
