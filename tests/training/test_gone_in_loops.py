"""A worker goes while all run a loop of their own: what the others see, and when."""

import re

import numpy as np
import pytest

from tests.processes import run_workers, run_workers_to_the_end
from tests.training.test_gone import RAW

TRAIN = "tests.training.cases_gone_in_loops:train"
WITHIN_S = 15
# What befalls which worker, and what the survivor is told of it.
FAULTS = {
    "killed": (0, r"is gone: its port refuses connections\."),
    "stopped": (1, r"was silent for \d+ s: it is stopped, or its host is down"),
    "fails": (1, r"failed with ValueError: of the script's own"),
}


@pytest.mark.parametrize(
    ("loop", "fault"),
    [*(("on batch", fault) for fault in FAULTS), ("by hand", "killed"), ("by hand", "fails"), ("in a cell", "stopped")],
)
def test_the_survivor_is_told_who(loop, fault):
    victim, said = FAULTS[fault]
    ended = run_workers_to_the_end(TRAIN, 2, args=(loop, fault, victim), waits_for=[1 - victim])
    status, after_s, output = ended[1 - victim]
    assert status == 1, output
    _, _, shown = output.partition("Traceback (most recent call last)")
    found = f"tfscale.errors.ClusterError: All workers must take part in every step.\nReceived: worker {victim} "
    assert re.search(re.escape(found) + r"\(127\.0\.0\.1:\d+\) " + said, shown), output
    assert not any(raw in shown for raw in RAW), output
    # AutoGraph converts what a step calls, and would convert what the notebook shows with it.
    assert loop != "in a cell" or re.search(r"shown by .*uncaught\.py\n", output), output
    assert after_s is None or after_s < 60


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_may_run_what_sends_nothing_by_itself(rank):
    results = run_workers("tests.training.cases_gone_in_loops:alone", 2, args=(rank,))
    rows = np.random.default_rng(0).normal(size=(8, 5)).astype("float32")
    assert results[rank][0] == pytest.approx(float(rows.sum()), rel=1e-5)
    assert results[0][1] == results[1][1]
