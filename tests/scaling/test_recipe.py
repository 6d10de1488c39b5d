"""`Recipe`, and the table of what was derived."""

import dataclasses
import math
from fractions import Fraction

import pytest

from tfscale import BatchError, BatchPlan, LinearRule, NoRule, Recipe, ScalingError, SqrtRule, scale_hyperparameters
from tfscale.scaling import ScaledKnob, describe_recipe
from tfscale.scaling.recipe import choose_recipe

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
    assert Recipe(64, "auto", warmup_epochs, 50_000).warmup_steps(PLAN, rule) == steps


def test_rule_of_schedule():
    assert Recipe(rule="linear").rule_of_schedule(PLAN) == LinearRule()
    assert Recipe(rule=SqrtRule()).rule_of_schedule(PLAN) == SqrtRule()
    assert Recipe().rule_of_schedule(BatchPlan(global_batch=64, num_replicas=8)) == NoRule()
    with pytest.raises(ScalingError, match=r"Received: rule='auto'"):
        Recipe().rule_of_schedule(PLAN)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"rule": "cubic"}, ScalingError),
        ({"rule": math.nan}, ScalingError),
        ({"warmup_epochs": -1}, ScalingError),
        ({"warmup_epochs": None}, ScalingError),
        ({"reference_batch": 0}, BatchError),
        ({"reference_batch": 8.0}, BatchError),
        ({"reference_batch": True}, BatchError),
        ({"examples_per_epoch": 0}, BatchError),
        ({"examples_per_epoch": 2.5}, BatchError),
        ({"adam_beta_1": "kept"}, ScalingError),
        ({"adam_beta_1": 0.9}, ScalingError),
        *(({"critical_batch": value}, ScalingError) for value in (0, -1.0, math.nan, math.inf, True, "600", 10**400)),
        *(({"clipped_share": value}, ScalingError) for value in (-0.1, 1.1, 25, math.nan, True, "0.2", [])),
    ],
)
def test_bad_input(arguments, error):
    with pytest.raises(error, match="Received: ") as caught:
        Recipe(**arguments)
    # By name, also where another argument has the same trouble.
    assert f"`{next(iter(arguments))}` must " in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("wrong", [{"reference_batch": 8}, "recipe", Recipe, BatchPlan(global_batch=8, num_replicas=1)])
def test_no_recipe(wrong):
    with pytest.raises(ScalingError, match=r"`recipe` must be a `tfscale.Recipe`\.\nReceived: recipe="):
        choose_recipe(wrong)


def test_recipe_by_default():
    known = Recipe(8, "sqrt", critical_batch=64)
    assert choose_recipe(known) is known
    assert choose_recipe(None) == Recipe()


def grown(class_name, **arguments):
    """The warnings of a batch that is 16 times larger."""
    config, recipe = arguments.pop("config", {}), Recipe(**arguments)
    plan = BatchPlan(per_replica_batch=32, num_replicas=16)
    knobs = scale_hyperparameters(
        {"class_name": class_name, "config": config},
        16,
        rule=recipe.rule,
        warmup_steps=lambda rule: recipe.warmup_steps(plan, rule),
        adam_beta_1=recipe.adam_beta_1,
    ).knobs
    named = [dataclasses.replace(knob, name=f"{class_name}.{knob.name}") for knob in knobs]
    lines = describe_recipe(recipe, plan, named).splitlines()
    return [line.removeprefix("Warning: ") for line in lines if line.startswith("Warning: ")]


COSINE = {"class_name": "CosineDecay", "config": {"warmup_steps": 1000, "decay_steps": 9000}}


@pytest.mark.parametrize(
    ("class_name", "arguments", "said"),
    [
        ("AdamW", {}, []),
        ("AdamW", {"critical_batch": 1025}, []),
        ("AdamW", {"critical_batch": 1024}, ["0.5 of the critical batch of 1024"]),
        (
            "AdamW",
            {"critical_batch": 512, "adam_beta_1": "memory"},
            ["it takes about 1.88 times the examples", "3 times the steps: AdamW.beta_1. Leave out"],
        ),
        ("Muon", {"critical_batch": 512, "adam_beta_1": "memory"}, ["0.118 of its steps", "Muon.adam_beta_1. Leave"]),
        ("SGD", {"warmup_epochs": 0, "clipped_share": 0.2}, []),
        ("SGD", {"warmup_epochs": 0, "clipped_share": 0.25}, ["bites in 25 % of the steps, more than 20 %"]),
        ("SGD", {"warmup_epochs": 0, "config": {"learning_rate": COSINE}}, []),
        ("AdamW", {"config": {"learning_rate": COSINE}}, ["AdamW.learning_rate.warmup_steps) shrinks to 62.5 steps"]),
        ("AdamW", {"config": {"learning_rate": COSINE, "beta_2": 0.9}}, []),
        ("ScheduleFreeAdamW", {"config": {"warmup_steps": 100}}, ["(ScheduleFreeAdamW.warmup_steps) shrinks to 6.25"]),
        # Five epochs are 39.06 steps of 512, or 15.6.
        ("SGD", {"examples_per_epoch": 4000}, []),
        ("SGD", {"examples_per_epoch": 1600}, ["SGD's warm-up to the new rate shrinks to 15.625 steps, below 20"]),
    ],
)
def test_warnings_of_a_grown_batch(class_name, arguments, said):
    found = grown(class_name, **arguments)
    assert len(found) == len(said)
    for line, text in zip(found, said, strict=True):
        assert text in line
        assert line.endswith(".")


def test_beyond_what_a_rule_was_shown_for():
    plan = BatchPlan(per_replica_batch=8, num_replicas=17)
    knob = ScaledKnob("Adam.learning_rate", "per step", 0.1, 0.4, "x sqrt(r)", "because")
    assert "batch_ratio 17 is above 16" in describe_recipe(Recipe(), plan, [knob])
    assert "Warning" not in describe_recipe(Recipe(), plan, [dataclasses.replace(knob, name="Adagrad.learning_rate")])
    assert "Warning" not in describe_recipe(Recipe(), PLAN, [knob])


def test_description():
    knob = ScaledKnob("beta", "per step", 0.9, 0.43046721, "m^r", "because")
    assert describe_recipe(Recipe(examples_per_epoch=1000), PLAN, [knob]).splitlines() == [
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
    text = describe_recipe(Recipe(), BatchPlan(global_batch=64, num_replicas=1), [])
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
