import dataclasses

import pytest

from tfscale.parity.cause import Finding, cause_under_keras, likeliest_cause
from tfscale.parity.outcome import DataFacts, ModelFacts

ALL = dict.fromkeys(("weights", "optimizer state", "epoch metrics", "evaluate", "predict"), 0.1)
FINDING = Finding(
    num_replicas=2,
    differing=ALL,
    model=ModelFacts(),
    data=DataFacts(global_batch=8, num_steps=3, batches=(4, 8), digest="digest"),
    same_data=True,
    control={},
)
ROUNDING = {"in_float64": 4e-15, "is_rounding": True}
OWN_TRAIN = ModelFacts(own_steps=("train_step",))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "mixes the examples of a batch (statistics of its own"),
        ({"same_data": False}, "`data` gave this run other examples"),
        ({"same_data": False, "model": OWN_TRAIN}, "`data` gave this run other examples"),
        ({"control": ALL}, "Float rounding that training amplifies"),
        ({"control": dict.fromkeys(ALL, 0.01)}, "Float rounding that training amplifies"),
        ({"control": dict.fromkeys(ALL, 0.009)}, "mixes the examples of a batch"),
        ({"control": {**ALL, "predict": 1e-7}}, "mixes the examples of a batch"),
        ({**ROUNDING, "model": OWN_TRAIN}, "in float64 the same runs agree to 4e-15"),
        ({**ROUNDING, "control": ALL}, "in float64 the same runs agree to 4e-15"),
        ({**ROUNDING, "same_data": False}, "`data` gave this run other examples"),
        # What float64 says is worth more than a run from weights one rounding away.
        ({"control": ALL, "in_float64": 0.1}, "mixes the examples of a batch"),
        ({"control": ALL, "in_float64": 0.1}, "(This is no rounding: in float64 the same run differs by 1e-01.)"),
        ({"control": ALL, "model": OWN_TRAIN}, "Float rounding that training amplifies"),
        ({"model": ModelFacts(averages_micro_steps=True)}, "moves the average on every micro-step"),
        ({"model": ModelFacts(random_on=("noise (Noise)",))}, "switched off: noise (Noise)."),
        ({"model": OWN_TRAIN}, "own train_step computes a loss that is no mean"),
        ({"differing": {"evaluate": 0.1}}, "a metric of your own"),
        ({"differing": {"evaluate": 0.1}, "model": OWN_TRAIN}, "own train_step logs a value"),
        ({"differing": {"epoch metrics": 0.1, "evaluate": 0.1}}, "a metric of your own"),
        ({"differing": {"predict": 0.1}}, "Only predictions differ"),
        ({"model": ModelFacts(num_added_losses=1)}, "An add_loss term"),
        # However small: the control would have shown rounding.
        ({"differing": {"weights": 2e-5}, "control": {"weights": 1e-6}}, "mixes the examples of a batch"),
    ],
)
def test_likeliest_cause(changes, expected):
    assert expected in likeliest_cause(dataclasses.replace(FINDING, **changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "each replica divides its loss by its own counts, or draws the same randomness."),
        ({"num_replicas": 3}, "a batch does not split evenly, and every replica's mean counts the same."),
        ({"model": ModelFacts(clips=True)}, "gradients are clipped before they are added up."),
        (
            {"num_replicas": 3, "model": ModelFacts(clips=True)},
            "a batch does not split evenly, and every replica's mean counts the same; "
            "gradients are clipped before they are added up.",
        ),
        (
            {"model": ModelFacts(batch_norm=("bn",))},
            "BatchNormalization sees the rows of one replica, and replica 0's statistics are kept.",
        ),
        ({"model": ModelFacts(num_added_losses=2)}, "add_loss terms are divided by the number of replicas."),
        ({"model": OWN_TRAIN}, "the model's own steps are not told which part of the batch they see."),
    ],
)
def test_cause_under_keras(changes, expected):
    assert cause_under_keras(dataclasses.replace(FINDING, **changes)) == expected
