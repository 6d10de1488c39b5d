"""What AdaScale measures inside of a step and what is computed from its sums afterwards are the same."""

import pytest
import tensorflow as tf

from tfscale.gradients.adascale import OwnMoments, estimate
from tfscale.measure import step_moments


@pytest.mark.parametrize(("squares", "norm", "examples", "shards"), [(17.0, 16.0, 2, 2), (3.5, 0.25, 144, 4)])
def test_the_same_moments(squares, norm, examples, shards):
    v, m = estimate(OwnMoments(tf.constant(squares), tf.constant(float(shards))), norm, float(examples))
    found = step_moments(squares, norm, examples, shards)
    assert (found.variance, found.squared_mean) == pytest.approx((float(v), float(m)), rel=1e-6)
