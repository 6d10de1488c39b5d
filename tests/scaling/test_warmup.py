import math
from fractions import Fraction

import pytest

from tfscale import LinearRule, NoRule, ScalingError, SqrtRule
from tfscale.scaling import count_warmup_steps, warmup_factor


def count(epochs="auto", rule=None, ratio=8, examples=50_000, **arguments):
    return count_warmup_steps(
        epochs, rule=rule or LinearRule(), ratio=ratio, reference_batch=64, examples_per_epoch=examples, **arguments
    )


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ({}, Fraction(5 * 50_000, 64)),
        ({"ratio": 1.5}, Fraction(5 * 50_000, 64)),
        ({"ratio": 1}, 0),
        ({"ratio": 0.5}, 0),
        ({"rule": SqrtRule()}, 0),
        ({"rule": NoRule()}, 0),
        ({"rule": SqrtRule(), "epochs": 2}, Fraction(2 * 50_000, 64)),
        ({"epochs": 0}, 0),
        ({"epochs": 0.5}, Fraction(25_000, 64)),
        ({"epochs": Fraction(1, 3)}, Fraction(50_000, 192)),
        ({"epochs": 2, "ratio": 1}, 0),
        ({"epochs": 0, "examples": None}, 0),
        ({"ratio": 1, "examples": None}, 0),
    ],
)
def test_length(arguments, steps):
    assert count(**arguments) == steps


def test_without_the_size_of_an_epoch():
    for epochs in ("auto", 2):
        with pytest.raises(ScalingError, match="without examples_per_epoch"):
            count(epochs, examples=None)


def test_longer_than_the_run():
    def run(warmup_epochs, epochs):
        return count_warmup_steps(
            warmup_epochs, rule=LinearRule(), ratio=8, reference_batch=64, examples_per_epoch=64, epochs=epochs
        )

    assert run("auto", 5) == 5
    assert run(0, 0.5) == 0
    for warmup_epochs, epochs in (("auto", 4), (2, 1), (2, Fraction(3, 2))):
        with pytest.raises(ScalingError, match="must not be longer than the run"):
            run(warmup_epochs, epochs)


@pytest.mark.parametrize("epochs", [-1, math.nan, math.inf, True, "five", None])
def test_malformed(epochs):
    with pytest.raises(ScalingError, match="`warmup_epochs` must be"):
        count(epochs)


@pytest.mark.parametrize(
    ("position", "factor", "steps", "expected"),
    [
        (0, 8, 0, 8),
        (0, 8, 10, 1),
        (5, 8, 10, 4.5),
        (10, 8, 10, 8),
        (11, 8, 10, 8),
        (0.25, 3, 0.5, 2),
        (5, 0.5, 10, 0.75),
    ],
)
def test_factor(position, factor, steps, expected):
    assert warmup_factor(position, factor, steps) == pytest.approx(expected)
