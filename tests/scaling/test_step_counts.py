import math

import pytest

from tfscale import ScalingError
from tfscale.scaling import scale_batch_norm_momentum, scale_callback_argument


@pytest.mark.parametrize(
    ("momentum", "ratio", "expected"),
    [(0.99, 8, 0.99**8), (0.9, 0.5, math.sqrt(0.9)), (0.99, 1, 0.99), (0, 8, 0), (1, 8, 1)],
)
def test_batch_norm_momentum(momentum, ratio, expected):
    assert scale_batch_norm_momentum(momentum, ratio).new == pytest.approx(expected)


def test_moving_statistics_remember_as_many_examples():
    # A step in the statistics at example 0 has decayed to m^n after n reference steps, and so after n / r steps.
    momentum = scale_batch_norm_momentum(0.99, 8).new
    assert [momentum ** (steps / 8) for steps in (8, 80, 800)] == pytest.approx([0.99**steps for steps in (8, 80, 800)])


@pytest.mark.parametrize(
    ("momentum", "ratio"), [(1.5, 8), (-0.1, 8), ("0.9", 8), (0.9, 1e9), (0.9, 0), (0.9, math.nan)]
)
def test_batch_norm_momentum_refused(momentum, ratio):
    with pytest.raises(ScalingError):
        scale_batch_norm_momentum(momentum, ratio)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("save_freq", "epoch", "epoch"),
        ("save_freq", False, False),
        ("save_freq", 800, 100),
        ("save_freq", 100, 13),
        ("save_freq", 1, 1),
        ("update_freq", "batch", "batch"),
        ("update_freq", "epoch", "epoch"),
        ("update_freq", 16, 2),
        ("profile_batch", 0, 0),
        ("profile_batch", 1, 1),
        ("profile_batch", 8, 1),
        ("profile_batch", 9, 2),
        ("profile_batch", (500, 520), (63, 65)),
        ("profile_batch", [10, 20], [2, 3]),
        ("profile_batch", "10,20", "2,3"),
    ],
)
def test_callback_arguments(name, value, expected):
    knob = scale_callback_argument(name, value, 8)
    assert knob.new == expected
    assert type(knob.new) is type(expected)
    assert scale_callback_argument(name, value, 1).new == value


def test_a_profiled_batch_holds_the_example_it_held():
    # Batch k of 32 ends with example 32 k; of 256, that one is in batch ceil(32 k / 256).
    for batch in range(1, 100):
        new = scale_callback_argument("profile_batch", batch, 8).new
        assert 256 * (new - 1) < 32 * batch <= 256 * new


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("patience", 3),
        ("save_freq", -1),
        ("save_freq", 2.5),
        ("save_freq", True),
        ("save_freq", None),
        ("update_freq", "minute"),
        ("profile_batch", -1),
        ("profile_batch", (20, 10)),
        ("profile_batch", (1, 2, 3)),
        ("profile_batch", "a,b"),
        ("profile_batch", 2.5),
        ("profile_batch", None),
    ],
)
def test_callback_arguments_refused(name, value):
    with pytest.raises(ScalingError) as caught:
        scale_callback_argument(name, value, 8)
    assert "\nReceived: " in str(caught.value)
