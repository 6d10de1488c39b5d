import numpy as np

from tests.processes import run_case

TRAINED = "tests.training.call.cases_traced:trained"


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
