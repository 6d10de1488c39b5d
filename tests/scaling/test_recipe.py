"""`BatchGrowth` and the table of what was derived."""

import math
from fractions import Fraction

import pytest

from tfscale import BatchError, BatchPlan, LinearRule, NoRule, ScalingError, SqrtRule, scale_hyperparameters
from tfscale.scaling import BatchGrowth, ScaledKnob, describe_growth

PLAN = BatchPlan(per_replica_batch=64, num_replicas=8)


@pytest.mark.parametrize(
    ("warmup_epochs", "rule", "steps"),
    [
        # 50 000 examples are 781.25 steps of 64.
        ("auto", LinearRule(), 5 * Fraction(50_000, 64)),
        ("auto", SqrtRule(), 0),
        (0, LinearRule(), 0),
        (0.5, SqrtRule(), Fraction(50_000, 128)),
    ],
)
def test_warmup_steps(warmup_epochs, rule, steps):
    assert BatchGrowth(PLAN, "auto", warmup_epochs, 50_000).warmup_steps(rule) == steps


def test_rule_of_schedule():
    assert BatchGrowth(PLAN, "linear").rule_of_schedule() == LinearRule()
    assert BatchGrowth(PLAN, SqrtRule()).rule_of_schedule() == SqrtRule()
    assert BatchGrowth(BatchPlan(global_batch=64, num_replicas=8)).rule_of_schedule() == NoRule()
    with pytest.raises(ScalingError, match=r"Received: rule='auto'"):
        BatchGrowth(PLAN).rule_of_schedule()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"rule": "cubic"}, ScalingError),
        ({"rule": math.nan}, ScalingError),
        ({"warmup_epochs": -1}, ScalingError),
        ({"warmup_epochs": None}, ScalingError),
        ({"examples_per_epoch": 0}, BatchError),
        ({"examples_per_epoch": 2.5}, BatchError),
    ],
)
def test_bad_input(arguments, error):
    with pytest.raises(error, match="Received"):
        BatchGrowth(PLAN, **arguments)


def test_description():
    knob = ScaledKnob("beta", "per step", 0.9, 0.43046721, "m^r", "because")
    assert describe_growth(BatchGrowth(PLAN, examples_per_epoch=1000), [knob]).splitlines() == [
        "8 replicas, global batch 512, reference batch 64: batch_ratio 8.",
        "",
        "name          unit      old  new       rule",
        "global batch  examples  64   512       x r",
        "epoch         steps     16   2         / r, rounded up",
        "beta          per step  0.9  0.430467  m^r",
        "",
        "Why:",
        "  beta: because",
    ]


def test_description_of_a_kept_batch():
    text = describe_growth(BatchGrowth(BatchPlan(global_batch=64, num_replicas=1)), [])
    assert text.startswith("1 replica, global batch 64, reference batch 64: batch_ratio 1.\n")
    assert text.endswith("nothing was changed.")


def test_warmup_may_depend_on_the_rule_that_is_used():
    def warmup_steps(rule):
        return 10 if rule == LinearRule() else 0

    parts = {"default_optimizer": optimizer("SGD"), "optimizer_map": {"encoder/.*": optimizer("Adam")}}
    choice = {"class_name": "OptimizerMap", "config": parts}
    both = {"class_name": "MultiOptimizer", "config": {"optimizer_map": choice}}
    made = scale_hyperparameters(both, 4, warmup_steps=warmup_steps).config["config"]["optimizer_map"]["config"]
    schedule = made["default_optimizer"]["config"]["learning_rate"]
    assert (schedule["class_name"], schedule["config"]["warmup_steps"]) == ("ReplicaSchedule", 10)
    assert made["optimizer_map"]["encoder/.*"]["config"]["learning_rate"] == 0.2
    with pytest.raises(ScalingError, match="`warmup_steps` must be"):
        scale_hyperparameters(optimizer("SGD"), 4, warmup_steps=lambda rule: -1)


def optimizer(name):
    return {"module": "keras.optimizers", "class_name": name, "config": {"learning_rate": 0.1}}
