import math

import pytest

from tfscale import AdaScaleRule, LinearRule, NoRule, ScalingError, ScalingRule, SqrtRule, scale_hyperparameters
from tfscale.scaling import resolve_rule
from tfscale.scaling.ratio import check_ratio
from tfscale.scaling.rules import PowerRule, rate_factor


@pytest.mark.parametrize(
    ("rule", "factors"),
    [
        ("linear", {1: 1, 2: 2, 8: 8, 0.5: 0.5}),
        ("sqrt", {1: 1, 4: 2, 64: 8, 0.25: 0.5}),
        ("none", {1: 1, 8: 1, 0.5: 1}),
        (LinearRule(), {8: 8}),
        (SqrtRule(), {16: 4}),
        (NoRule(), {8: 1}),
        (PowerRule(1.5), {4: 8}),
        (lambda ratio: ratio**0.75, {1: 1, 16: 8}),
        (3.0, {1: 1, 8: 3}),
        (3, {8: 3}),
    ],
)
def test_factors(rule, factors):
    assert {ratio: rate_factor(resolve_rule(rule), ratio) for ratio in factors} == pytest.approx(factors)


def test_a_measured_factor_is_not_one_factor():
    rule = resolve_rule("adascale")
    assert (rule, rule(8)) == (AdaScaleRule(), 8)
    with pytest.raises(ScalingError, match="measured at every step"):
        rate_factor(rule, 8)


def test_auto_is_the_rule_of_the_optimizer():
    assert resolve_rule("auto", auto=SqrtRule()) == SqrtRule()
    with pytest.raises(ScalingError, match="'linear', 'sqrt', 'none'"):
        resolve_rule("auto")


@pytest.mark.parametrize("rule", ["cubic", "", "LINEAR", None, True, 0, -1.0, math.nan, math.inf, [], SqrtRule])
def test_unknown_rule(rule):
    with pytest.raises(ScalingError, match="`rule` must say") as caught:
        scale_hyperparameters({"class_name": "SGD", "config": {}}, 2, rule=rule)
    assert f"Received: rule={rule!r}" in str(caught.value)


def test_a_class_in_place_of_a_rule_is_explained():
    with pytest.raises(ScalingError, match=r"Give an instance of it: SqrtRule\(\)"):
        resolve_rule(SqrtRule)


@pytest.mark.parametrize("factor", [0, -1, math.nan, math.inf, "2", None])
def test_rule_with_an_impossible_factor(factor):
    with pytest.raises(ScalingError, match="positive, finite factor"):
        rate_factor(resolve_rule(lambda ratio: 1.0 if ratio == 1 else factor), 2)


def test_rule_that_changes_the_reference_rate():
    with pytest.raises(ScalingError, match="at batch ratio 1"):
        rate_factor(resolve_rule(lambda ratio: 2 * ratio), 8)


def test_rule_that_leaves_a_beta_outside():
    class FirstOrder(ScalingRule):
        """beta' = 1 - r (1 - beta), which is negative from r = 10 for 0.9."""

        def __call__(self, ratio):
            return ratio**0.5

        def memory(self, beta, ratio):
            return 1 - ratio * (1 - beta)

    adam = {"class_name": "Adam", "config": {"beta_1": 0.9, "beta_2": 0.999}}
    asked = {"rule": FirstOrder(), "adam_beta_1": "memory"}
    assert scale_hyperparameters(adam, 8, **asked).config["config"]["beta_1"] == pytest.approx(0.2)
    with pytest.raises(ScalingError, match=r"`beta_1` must stay between 0 and 1(.|\n)*batch ratio 16"):
        scale_hyperparameters(adam, 16, **asked)


@pytest.mark.parametrize("rule", [LinearRule(), SqrtRule(), NoRule()])
def test_every_rule_names_its_source_and_range(rule):
    assert "Validity" in type(rule).__doc__
    assert rule.source
    assert (rule.shown_up_to is None) == (rule.shown_by == "")


@pytest.mark.parametrize("ratio", [0, -1, math.nan, math.inf, -math.inf, True, None, "8", 1j])
def test_bad_ratio(ratio):
    with pytest.raises(ScalingError, match="must be a positive, finite number"):
        check_ratio(ratio)
    with pytest.raises(ScalingError, match="must be a positive, finite number"):
        scale_hyperparameters({"class_name": "SGD", "config": {}}, ratio)
