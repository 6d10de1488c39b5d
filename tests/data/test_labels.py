"""Labels tell whether workers have had the same batches: other examples are seen, rounding is not."""

import numpy as np
import pytest

from tfscale.cluster.passes import are_same_labels
from tfscale.data.labels import SumsOfLabels


def _numbers(batches):
    sums = SumsOfLabels()
    for labels in batches:
        sums.add(labels)
    return sums.numbers


# A sum of all labels differs ever less from another, for its size, the more labels there are.
@pytest.mark.parametrize(("count", "most"), [(6, 10), (256, 10), (2**16, 5000)])
def test_other_labels_are_never_taken_for_the_same(count, most):
    draw = np.random.default_rng(3)
    for _ in range(50):
        first, second = (draw.integers(0, most, (2, count)) for _ in range(2))
        assert not are_same_labels(_numbers(first), _numbers(second))


def test_another_order_of_the_batches_is_seen():
    batches = np.random.default_rng(3).normal(size=(4, 32, 1))
    assert not are_same_labels(_numbers(batches), _numbers(batches[[0, 2, 1, 3]]))


def test_strings_are_labels_too():
    words = np.array(["cat", "dog", "cow"])
    assert are_same_labels(_numbers([words]), _numbers([words.astype(object)]))
    assert not are_same_labels(_numbers([words]), _numbers([words[::-1]]))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_a_label_that_is_no_number_hides_no_other(odd):
    labels = np.array([odd, 1.0, 2.0, 3.0])
    assert are_same_labels(_numbers([labels]), _numbers([labels]))
    assert not are_same_labels(_numbers([labels]), _numbers([labels[[0, 3, 1, 2]]]))


def test_labels_of_a_prediction_may_be_rounded_otherwise():
    labels = np.random.default_rng(3).normal(size=(8, 4096))
    assert are_same_labels(_numbers(labels), _numbers(labels * (1 + 1e-5)))
