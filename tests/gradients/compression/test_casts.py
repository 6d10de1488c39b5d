import numpy as np
import pytest
import tensorflow as tf

from tests.gradients.compression.replicas import on_replicas
from tfscale import CommunicationError, ErrorFeedback
from tfscale.gradients.compression.casts import Bfloat16, Float16, check_bf16, check_fp16

# Half a unit in the last of 8 and 11 bits, beside the smallest number that has them.
BF16, FP16 = 2.0**-8, 2.0**-11


def reduced(compression, parts, num_steps=1):
    """The sums of each step as one replica sees them, and how much of its own part is in the last."""

    def replica(rank, sum_over_replicas):
        gradient = tf.constant(parts[rank], tf.float32)
        states = [compression.initial_state(tf.TensorSpec(gradient.shape, gradient.dtype), 0)]
        sums = []
        for _ in range(num_steps):
            reduction = compression.reduce([gradient], states, sum_over_replicas)
            states = reduction.states
            sums.append(reduction.sums[0].numpy())
        return sums, reduction.own[0].numpy()

    return on_replicas(len(parts), replica)


@pytest.mark.parametrize("num_replicas", [1, 2, 3, 5])
@pytest.mark.parametrize(("name", "rounding"), [("bf16", BF16), ("fp16", FP16)])
def test_rounds_each_part_and_each_addition(num_replicas, name, rounding):
    parts = np.random.default_rng(0).uniform(0.5, 1, size=(num_replicas, 1000)).astype("float32")
    compression = Bfloat16() if name == "bf16" else Float16(num_replicas)
    expected = parts.astype("float64").sum(axis=0)
    results = reduced(compression, parts)
    for [sums], own in results:
        # Every addition rounds a number that is at most the whole.
        np.testing.assert_allclose(sums, expected, rtol=num_replicas * rounding)
        assert np.any(sums != expected.astype("float32"))
        assert own.dtype == sums.dtype == np.float32
    for rank, (_, own) in enumerate(results):
        np.testing.assert_allclose(own, parts[rank], rtol=rounding)


@pytest.mark.parametrize("num_replicas", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("part", "expected"),
    [
        # 65504 is float16's largest number.
        (65504.0, 65504.0),
        (60000.0, 60000.0),
        (-60000.0, -60000.0),
        # What float16 cannot hold must not come out as a number.
        (1e9, np.inf),
        (-1e30, -np.inf),
        (np.inf, np.inf),
        (-np.inf, -np.inf),
        (np.nan, np.nan),
        (0.0, 0.0),
    ],
)
def test_fp16_cannot_overflow(num_replicas, part, expected):
    for [sums], _ in reduced(Float16(num_replicas), np.full((num_replicas, 3), part)):
        np.testing.assert_allclose(sums, np.full(3, num_replicas * expected), rtol=num_replicas * FP16)


def test_infinity_of_one_replica_reaches_all():
    for name in (Bfloat16(), Float16(2)):
        for [sums], _ in reduced(name, [[np.inf, 1.0], [1.0, 1.0]]):
            np.testing.assert_array_equal(sums, [np.inf, 2])


@pytest.mark.parametrize("num_replicas", [1, 3])
@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_feedback_loses_nothing(num_replicas, name):
    # What one step leaves out is there in the end: after k steps, k times the gradient less what is remembered.
    num_steps = 64
    parts = np.random.default_rng(1).normal(size=(num_replicas, 50)).astype("float32")
    compression = ErrorFeedback(Bfloat16() if name == "bf16" else Float16(num_replicas))
    expected = num_steps * parts.astype("float64").sum(axis=0)

    def distance(compression):
        sums, _ = reduced(compression, parts, num_steps)[0]
        return np.abs(np.sum(sums, axis=0, dtype="float64") - expected).max()

    if num_replicas == 1:
        # One step's rounding remains, in place of that of all.
        assert distance(compression) <= 4 * (BF16 if name == "bf16" else FP16)
    # The rounding of the sums themselves is nobody's, and stays.
    assert distance(compression) < distance(compression.inner)


@pytest.mark.parametrize(
    ("kinds", "capabilities", "fits"),
    [
        (["CPU"], [], True),
        (["CPU"], [(3, 5)], True),
        (["GPU", "GPU"], [], True),
        (["GPU"], [(5, 3)], True),
        (["GPU"], [(9, 0)], True),
        (["GPU"], [(10, 0)], True),
        (["GPU"], [(5, 2)], False),
        (["GPU"], [(8, 0), (3, 7)], False),
    ],
)
def test_devices_for_fp16(kinds, capabilities, fits):
    if fits:
        check_fp16(kinds, capabilities)
    else:
        with pytest.raises(CommunicationError, match=r"compute in float16(.|\n)*Received: a GPU of compute capability"):
            check_fp16(kinds, capabilities)


def test_devices_for_bf16():
    check_bf16(["CPU", "CPU"])
    with pytest.raises(CommunicationError, match=r'adds bfloat16 over replicas(.|\n)*Use "fp16" or "none"'):
        check_bf16(["GPU"])


def test_no_second_feedback():
    for inner in (ErrorFeedback("bf16"), "fp8", "none", None, 16):
        with pytest.raises(CommunicationError, match="Received"):
            ErrorFeedback(inner)
