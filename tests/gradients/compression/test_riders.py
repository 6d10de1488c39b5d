"""Exact numbers among bfloat16 ones."""

import numpy as np
import pytest
import tensorflow as tf

from tests.training.together import Failure, run_together
from tfscale.gradients.compression.riders import add_up, take_seats

CASE = "tests.replicas.cases_all_reduce:riders"
# replicas, dtype of the gradient, how many more; float64 always takes a collective of its own.
CALLS = [
    (3, "bfloat16", 5, 2),
    # float16 has not the range of float32.
    (3, "float16", 5, 3),
    # 3 parts of 2 bytes of each for each of 3 replicas: more than is worth it.
    (3, "bfloat16", 20_000, 3),
]


@pytest.fixture(scope="module")
def results():
    return run_together([(CASE, call[:3]) for call in CALLS])


@pytest.mark.parametrize(("num_replicas", "dtype", "many", "collectives"), CALLS)
def test_sums_are_exact_and_need_no_collective(results, num_replicas, dtype, many, collectives):
    found = results[CASE, (num_replicas, dtype, many)]
    assert not isinstance(found, Failure), found
    assert found["collectives"] == collectives * num_replicas
    parts = np.arange(1, num_replicas + 1, dtype="float32")
    for (thirds, missing, sevenths, wide, empty), gradients, is_missing in found["results"]:
        assert is_missing
        assert missing == 0
        # Rounded where they are added, and nowhere else.
        np.testing.assert_allclose(thirds, (parts / 3).sum(dtype="float64"), rtol=1.2e-7)
        np.testing.assert_allclose(sevenths, np.full(many, (parts / 7).sum(dtype="float64")), rtol=1.2e-7)
        assert (wide.dtype, wide) == (np.float64, parts.sum())
        assert (empty.dtype, empty.shape) == (np.float32, (0, 2))
        np.testing.assert_array_equal(np.asarray(gradients[0], "float32"), np.full(4, parts.sum() / 4))


@pytest.mark.parametrize("num_replicas", [1, 2, 5])
def test_a_number_arrives_as_it_left(num_replicas):
    random = np.random.default_rng(0)
    edges = [0.0, 1 / 3, -1 / 3, np.inf, -np.inf, np.nan, np.finfo("float32").max, np.finfo("float32").min, 1e-30]
    numbers = np.array([*edges, *(random.normal(size=1000) * 10.0 ** random.integers(-30, 38, 1000))], "float32")
    for replica in range(num_replicas):
        seats = [
            take_seats([tf.constant(numbers if rank == replica else 0 * np.ones_like(numbers))], rank, num_replicas)
            for rank in range(num_replicas)
        ]
        (arrived,) = add_up(sum(seats[1:], seats[0]), [tf.TensorShape([len(numbers)])])
        np.testing.assert_array_equal(arrived, numbers)


def test_numbers_of_several_shapes():
    numbers = [tf.constant(2.5), tf.reshape(tf.range(6.0), [2, 3]), tf.zeros([0]), tf.constant([7.0])]
    seats = take_seats(numbers, 0, 2) + take_seats(numbers, 1, 2)
    for own, total in zip(numbers, add_up(seats, [each.shape for each in numbers]), strict=True):
        np.testing.assert_array_equal(total, 2 * own.numpy())
