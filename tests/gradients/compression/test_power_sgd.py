"""PowerSGD against the paper's algorithm, written down once more with NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tests.gradients.compression.replicas import on_replicas
from tfscale import CommunicationError, PowerSGD
from tfscale.gradients.compression.power_sgd import is_worth_it, matrix_shape

# A dense kernel, its bias, a convolution's kernel, one that is too small.
SHAPES = [(20, 12), (12,), (3, 3, 4, 12), (2, 3)]
STEPS = 4


def gradients(num_replicas):
    generator = np.random.default_rng(0)
    return [
        [[generator.normal(size=shape).astype("float32") for shape in SHAPES] for _ in range(num_replicas)]
        for _ in range(STEPS)
    ]


def by_the_paper(steps, first_q, rank):
    """Algorithms 1 and 2 of Vogels et al. 2019 for one matrix: what is applied in each step, and the memories."""
    errors = [np.zeros_like(part, dtype="float64") for part in steps[0]]
    q, applied = first_q.astype("float64"), []
    for parts in steps:
        wanted = [part + error for part, error in zip(parts, errors, strict=True)]
        p, _ = np.linalg.qr(sum(each @ q for each in wanted))
        own_q = [each.T @ p for each in wanted]
        q = sum(own_q)
        applied.append(p @ q.T)
        errors = [each - p @ own.T for each, own in zip(wanted, own_q, strict=True)]
    return applied, errors


@pytest.mark.parametrize("num_replicas", [1, 2, 3])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_follows_the_paper(num_replicas, rank):
    steps = gradients(num_replicas)
    power = PowerSGD(rank)
    start = [power.initial_state(tf.TensorSpec(shape), index) for index, shape in enumerate(SHAPES)]

    def replica(own_rank, sum_over_replicas):
        states, sums = start, []
        for parts in steps:
            reduction = power.reduce([tf.constant(part) for part in parts[own_rank]], states, sum_over_replicas)
            states = reduction.states
            sums.append([total.numpy() for total in reduction.sums])
        return sums, [state[0].numpy() for state in states]

    results = on_replicas(num_replicas, replica)
    for index, shape in enumerate(SHAPES):
        matrix = [[part[index].reshape(-1, shape[-1]) for part in parts] for parts in steps]
        if len(start[index]) == 1:
            applied = [sum(parts) for parts in matrix]
            errors = [np.zeros_like(part) for part in matrix[0]]
        else:
            applied, errors = by_the_paper(matrix, start[index][1].numpy(), rank)
        for own_rank, (sums, memories) in enumerate(results):
            for step, expected in enumerate(applied):
                np.testing.assert_allclose(sums[step][index].reshape(expected.shape), expected, atol=2e-5)
            np.testing.assert_allclose(memories[index].reshape(errors[own_rank].shape), errors[own_rank], atol=2e-5)


@pytest.mark.parametrize(
    ("shape", "rank", "is_whole"),
    [
        ((), 1, True),
        ((10,), 1, True),
        ((0, 5), 1, True),
        ((1, 100), 1, True),
        # (n + m) k against n m / 2: equal is worth it.
        ((4, 4), 1, False),
        ((4, 4), 2, True),
        ((3, 4), 1, True),
        ((3, 3, 16, 32), 2, False),
        ((784, 512), 2, False),
        ((512, 10), 2, False),
        ((512, 10), 4, False),
        ((512, 10), 5, True),
    ],
)
def test_small_tensors_travel_whole(shape, rank, is_whole):
    assert (len(PowerSGD(rank).initial_state(tf.TensorSpec(shape), 0)) == 1) is is_whole


def test_sent_numbers():
    rows, columns = matrix_shape(tf.TensorShape((784, 512)))
    assert (rows, columns) == (784, 512)
    # 784 * 512 / 2 / (784 + 512) = 154.9
    assert [is_worth_it(rows, columns, rank) for rank in (154, 155)] == [True, False]


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan])
def test_matrices_without_directions(value):
    power = PowerSGD(1)
    state = power.initial_state(tf.TensorSpec((6, 6)), 0)
    reduction = power.reduce([tf.fill((6, 6), value)], [state], list)
    if value == 0:
        np.testing.assert_array_equal(reduction.sums[0], np.zeros((6, 6)))
        # It finds its way from no direction at all.
        again = power.reduce([tf.ones((6, 6))] * 1, reduction.states, list)
        np.testing.assert_allclose(
            power.reduce([tf.zeros((6, 6))], again.states, list).sums[0], 1 - again.sums[0], atol=1e-5
        )
    else:
        assert not np.any(np.isfinite(reduction.sums[0]))


@pytest.mark.parametrize("rank", [0, -1, 1.5, True, "2", None])
def test_bad_rank(rank):
    with pytest.raises(CommunicationError, match=r"`rank` must be a positive integer(.|\n)*Received: rank="):
        PowerSGD(rank)
