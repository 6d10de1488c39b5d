"""The exact noise of a perceptron by formula, beside the tape's gradient of each example; a short run, compared."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.noise_truth import compare, exact_moments, is_near
from benchmarks.study.workloads import digits, perceptron_momentum


def test_the_formula_gives_what_the_tape_gives():
    data = digits()
    x, y = data["x"][:50], data["y"][:50]
    model = perceptron_momentum()
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x))
    parts = tape.jacobian(losses, model.trainable_variables)
    gradients = np.concatenate([part.numpy().reshape(50, -1) for part in parts], axis=1)
    mean = gradients.mean(axis=0)
    found = exact_moments(model.get_weights(), x, y)
    assert found.squared_mean == pytest.approx(mean @ mean, rel=1e-4)
    assert found.variance == pytest.approx(np.sum((gradients - mean) ** 2) / 50, rel=1e-4)


def test_a_short_run():
    found = compare("momentum", 8, 200, seed=0)
    assert len(found.ratios) == 2
    assert all(is_near(ratio) for ratio in found.ratios)
    assert found.held >= 1
    assert 0.5 < found.whole < 2


@pytest.mark.parametrize(("ratio", "near"), [(0.49, False), (0.5, True), (2.0, True), (2.1, False), (None, False)])
def test_within_2_times(ratio, near):
    assert is_near(ratio) is near
