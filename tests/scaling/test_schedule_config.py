import json
from fractions import Fraction

import pytest

from tfscale import scale_hyperparameters

COSINE = {
    "module": "keras.optimizers.schedules",
    "class_name": "CosineDecay",
    "config": {
        "initial_learning_rate": 0.1,
        "decay_steps": 1000,
        "warmup_target": 0.2,
        "warmup_steps": 100,
        "alpha": 0.0,
    },
    "registered_name": None,
}


def rescale(schedule, ratio=8, **arguments):
    return scale_hyperparameters({"class_name": "SGD", "config": {"learning_rate": schedule}}, ratio, **arguments)


def test_schedule_is_wrapped_and_kept_as_it_is():
    wrapped = rescale(COSINE).config["config"]["learning_rate"]
    assert wrapped == {
        "module": "tfscale.rederive.schedules",
        "class_name": "ReplicaSchedule",
        "config": {"schedule": COSINE, "batch_ratio": 8, "rule": "linear", "warmup_steps": 0},
        "registered_name": "tfscale>ReplicaSchedule",
    }


@pytest.mark.parametrize(
    ("rule", "written"),
    [("auto", "linear"), ("sqrt", "sqrt"), ("none", "none"), (3.5, 3.5), (lambda ratio: ratio**2, 64)],
)
def test_rule_is_written_as_json(rule, written):
    config = rescale(COSINE, rule=rule).config
    assert json.loads(json.dumps(config))["config"]["learning_rate"]["config"]["rule"] == written


@pytest.mark.parametrize(
    ("ratio", "written"), [(8, 8), (Fraction(3, 2), 1.5), (1.5, 1.5), (0.5, 0.5), (Fraction(4, 3), 4 / 3)]
)
def test_ratio_is_written_as_a_number(ratio, written):
    assert rescale(COSINE, ratio).config["config"]["learning_rate"]["config"]["batch_ratio"] == written


def test_warmup_counts_reference_steps_and_needs_a_schedule():
    assert rescale(0.1, warmup_steps=3906.25).config["config"]["learning_rate"]["config"] == {
        "schedule": 0.1,
        "batch_ratio": 8,
        "rule": "linear",
        "warmup_steps": 3906.25,
    }
    assert rescale(0.1).config["config"]["learning_rate"] == pytest.approx(0.8)
    assert rescale(0.1, rule="none", warmup_steps=5).config["config"]["learning_rate"] == 0.1


def test_what_it_amounts_to_is_listed():
    knobs = {knob.name: (knob.old, knob.new) for knob in rescale(COSINE).knobs if knob.name.startswith("learning_rate")}
    assert knobs == {
        "learning_rate": ("CosineDecay", "8 * CosineDecay(step * 8)"),
        "learning_rate.decay_steps": (1000, 125),
        "learning_rate.warmup_steps": (100, 12.5),
        "learning_rate.initial_learning_rate": (0.1, pytest.approx(0.8)),
        "learning_rate.warmup_target": (0.2, pytest.approx(1.6)),
    }


def test_lists_of_boundaries():
    steps = {"class_name": "PiecewiseConstantDecay", "config": {"boundaries": [4, 1000], "values": [1.0, 0.5, 0.1]}}
    knobs = {knob.name: knob.new for knob in rescale(steps).knobs}
    assert knobs["learning_rate.boundaries"] == [0.5, 125]
    assert knobs["learning_rate.values"] == [8, 4, pytest.approx(0.8)]


def test_our_own_step_decay():
    decay = {"class_name": "StepDecay", "config": {"initial_learning_rate": 0.1, "multiplier": 0.5, "interval": 3}}
    assert {knob.name: knob.new for knob in rescale(decay).knobs}["learning_rate.interval"] == 0.375


def test_schedules_inside_one_another():
    # One of a user's own: whatever it does, its steps are stretched. Of its rates nothing can be said.
    nested = {
        "class_name": "WarmUp",
        "config": {"power": 2, "after": {"class_name": "Sum", "config": {"of": [COSINE, 1]}}},
    }
    scaled, knobs = rescale(nested)
    assert scaled["config"]["learning_rate"]["config"]["schedule"] == nested
    names = {knob.name: knob.new for knob in knobs if knob.name.startswith("learning_rate.")}
    assert names == {
        "learning_rate.after.of[0].decay_steps": 125,
        "learning_rate.after.of[0].warmup_steps": 12.5,
    }
    assert all(knob.is_understood for knob in knobs)
