import dataclasses
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfscale import BatchError, BatchPlan

counts = st.integers(1, 300)


@pytest.mark.parametrize(
    ("given_", "per_replica", "micro", "steps", "replicas", "total", "reference"),
    [
        ({"per_replica_batch": 64, "num_replicas": 8}, 64, 64, 1, 8, 512, 64),
        ({"per_replica_batch": 64, "num_replicas": 1}, 64, 64, 1, 1, 64, 64),
        ({"per_replica_batch": 1, "num_replicas": 1}, 1, 1, 1, 1, 1, 1),
        ({"global_batch": 512, "num_replicas": 8}, 64, 64, 1, 8, 512, 512),
        ({"global_batch": 512, "per_replica_batch": 64}, 64, 64, 1, 8, 512, 64),
        ({"micro_batch": 16, "accumulation": 4}, 64, 16, 4, 1, 64, 64),
        ({"micro_batch": 16, "num_replicas": 8}, 16, 16, 1, 8, 128, 16),
        ({"micro_batch": 16, "per_replica_batch": 64}, 64, 16, 4, 1, 64, 64),
        ({"micro_batch": 16, "global_batch": 64}, 64, 16, 4, 1, 64, 64),
        ({"accumulation": 4, "per_replica_batch": 64}, 64, 16, 4, 1, 64, 64),
        ({"accumulation": 4, "global_batch": 64}, 64, 16, 4, 1, 64, 64),
        ({"global_batch": 256, "micro_batch": 16, "accumulation": 4}, 64, 16, 4, 4, 256, 256),
        ({"global_batch": 512, "num_replicas": 8, "micro_batch": 16}, 64, 16, 4, 8, 512, 512),
        ({"per_replica_batch": 64, "num_replicas": 8, "reference_batch": 256}, 64, 64, 1, 8, 512, 256),
        # Uneven: the mean is exact, and a pass takes the largest share.
        ({"global_batch": 100, "num_replicas": 8}, Fraction(25, 2), 13, 1, 8, 100, 100),
        ({"global_batch": 100, "num_replicas": 8, "micro_batch": 5}, Fraction(25, 2), 5, 3, 8, 100, 100),
        ({"per_replica_batch": 100, "micro_batch": 32}, 100, 32, 4, 1, 100, 100),
        ({"per_replica_batch": 10, "accumulation": 4}, 10, 3, 4, 1, 10, 10),
        ({"per_replica_batch": 10, "accumulation": 6}, 10, 2, 6, 1, 10, 10),
        ({"per_replica_batch": 10, "micro_batch": 64}, 10, 64, 1, 1, 10, 10),
        ({"global_batch": 100, "micro_batch": 32, "accumulation": 4}, 100, 32, 4, 1, 100, 100),
        ({"per_replica_batch": Fraction(25, 2), "num_replicas": 8}, Fraction(25, 2), 13, 1, 8, 100, 13),
    ],
)
def test_two_give_the_rest(given_, per_replica, micro, steps, replicas, total, reference):
    plan = BatchPlan(**given_)
    assert dataclasses.astuple(plan) == (per_replica, micro, steps, replicas, total, reference)


@pytest.mark.parametrize(
    ("given_", "rule"),
    [
        ({}, "Two of"),
        ({"per_replica_batch": 64}, "Two of"),
        ({"global_batch": 64, "reference_batch": 64}, "Two of"),
        ({"num_replicas": 8, "accumulation": 2}, "must follow"),
        ({"per_replica_batch": 64, "num_replicas": 8, "global_batch": 500}, "`per_replica_batch` times `num_replicas`"),
        ({"per_replica_batch": 64, "global_batch": 100}, "whole multiple"),
        ({"per_replica_batch": Fraction(25, 2), "num_replicas": 3}, "`per_replica_batch` times `num_replicas`"),
        ({"per_replica_batch": 64, "micro_batch": 16, "accumulation": 3}, "`micro_batch` times `accumulation`"),
        ({"per_replica_batch": 64, "micro_batch": 16, "accumulation": 5}, "`micro_batch` times `accumulation`"),
        ({"per_replica_batch": 2, "micro_batch": 1, "accumulation": 3}, "`micro_batch` times `accumulation`"),
        ({"global_batch": 4, "num_replicas": 8}, r"at least the number of replicas \(8\)"),
        ({"per_replica_batch": 0, "num_replicas": 8}, "`per_replica_batch` must be a positive integer"),
        ({"per_replica_batch": -1, "num_replicas": 8}, "`per_replica_batch` must be a positive integer"),
        ({"per_replica_batch": 64.0, "num_replicas": 8}, "`per_replica_batch` must be a positive integer"),
        ({"per_replica_batch": True, "num_replicas": 8}, "`per_replica_batch` must be a positive integer"),
        ({"per_replica_batch": "64", "num_replicas": 8}, "`per_replica_batch` must be a positive integer"),
        ({"per_replica_batch": 64, "num_replicas": Fraction(3, 2)}, "`num_replicas` must be a positive integer"),
        ({"per_replica_batch": 64, "num_replicas": 8, "reference_batch": 0}, "`reference_batch` must be a positive"),
    ],
)
def test_contradictions(given_, rule):
    with pytest.raises(BatchError, match=rule) as caught:
        BatchPlan(**given_)
    assert "Received: " in str(caught.value)


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        BatchPlan(per_replica_batch=1, num_replicas=1).num_replicas = 2


@pytest.mark.parametrize(
    ("total", "reference", "ratio"), [(512, 64, 8), (64, 64, 1), (96, 64, Fraction(3, 2)), (64, 96, Fraction(2, 3))]
)
def test_batch_ratio_is_exact(total, reference, ratio):
    assert BatchPlan(global_batch=total, num_replicas=2, reference_batch=reference).batch_ratio == ratio


@pytest.mark.parametrize(
    ("examples", "batch", "kept", "dropped"),
    [(50_000, 512, 98, 97), (512, 512, 1, 1), (513, 512, 2, 1), (1, 1, 1, 1), (1023, 512, 2, 1)],
)
def test_steps_per_epoch(examples, batch, kept, dropped):
    plan = BatchPlan(global_batch=batch, num_replicas=1)
    assert plan.steps_per_epoch(examples) == kept
    assert plan.steps_per_epoch(examples, drop_remainder=True) == dropped


def test_an_epoch_without_a_step_is_refused():
    plan = BatchPlan(global_batch=512, num_replicas=1)
    assert plan.steps_per_epoch(511) == 1
    with pytest.raises(BatchError, match="at least one step"):
        plan.steps_per_epoch(511, drop_remainder=True)
    with pytest.raises(BatchError, match="`num_examples` must be a positive integer"):
        plan.steps_per_epoch(0)


def test_a_short_last_batch_changes_what_a_step_stands_for():
    plan = BatchPlan(per_replica_batch=32, num_replicas=8)
    assert plan.reference_steps_per_step(256 * 7) == 8
    assert plan.reference_steps_per_step(1797) == Fraction(57, 8)
    assert plan.reference_steps_per_step(1797, drop_remainder=True) == 8


def test_conversions_are_exact():
    plan = BatchPlan(per_replica_batch=32, num_replicas=8)
    assert plan.steps_to_examples(3) == 768
    assert plan.examples_to_steps(1) == Fraction(1, 256)
    assert plan.epochs_to_steps(5, 50_000) == Fraction(250_000, 256)
    assert plan.steps_to_epochs(Fraction(250_000, 256), 50_000) == 5
    assert plan.steps_to_reference_steps(1.5) == 12
    for bad in (-1, float("nan"), float("inf"), True, "3", None):
        with pytest.raises(BatchError, match="`steps` must be a number, 0 or more"):
            plan.steps_to_examples(bad)


@given(total=counts, replicas=counts)
def test_shares_cover_the_batch_evenly(total, replicas):
    if total < replicas:
        return
    shares = BatchPlan(global_batch=total, num_replicas=replicas).shares
    assert sum(shares) == total
    assert len(shares) == replicas
    assert max(shares) - min(shares) <= 1


@given(per_replica=counts, replicas=counts, micro=counts)
def test_every_fact_of_a_plan_can_be_given_back(per_replica, replicas, micro):
    plan = BatchPlan(per_replica_batch=per_replica, num_replicas=replicas, micro_batch=micro)
    assert BatchPlan(**dataclasses.asdict(plan)) == plan
    assert plan.micro_batch * plan.accumulation >= per_replica > plan.micro_batch * (plan.accumulation - 1)
