"""What is nothing but chance, or rounding?"""

import numpy as np
import pytest

from tfscale.exact.terms import Term
from tfscale.training.check.chance import made_by_draws

TERM = Term("gradients", 1, 0, "optimizer 'sgd'")
OTHER = Term("gradients", 2, 0, "optimizer 'other'")
SLOTS = ["sgd/iterations", "sgd/net_dense_bias_momentum", "sgd/net_dense_kernel_momentum", "other/head_bias_momentum"]


def _records(size, other=1.0):
    return {TERM: {"net/dense/bias": np.array([size, 0.0])}, OTHER: {"head/bias": np.array([other])}}


@pytest.mark.parametrize(("ours", "reference"), [(1e-6, 0.0), (0.0, 1e-6), (1e-6, 1e-8)])
def test_gradients_that_vanish_while_draws_are_held_still_are_made_by_draws(ours, reference):
    found = made_by_draws(_records(0.1), _records(ours), _records(reference), SLOTS, 3e-4)
    assert found == {
        ("gradients", "optimizer 'sgd'"),
        ("weight", "weight 'net/dense/bias'"),
        ("weight", "weight 'sgd/net_dense_bias_momentum'"),
    }


@pytest.mark.parametrize(("ours", "reference"), [(1e-4, 0.0), (0.0, 1e-4), (0.3, 0.1)])
def test_what_is_more_than_rounding_on_either_side_is_not(ours, reference):
    assert not made_by_draws(_records(0.1), _records(ours), _records(reference), SLOTS, 3e-4)


def test_what_vanishes_with_draws_too_is_not():
    assert not made_by_draws(_records(0.0), _records(1e-6), _records(1e-8), SLOTS, 3e-4)
