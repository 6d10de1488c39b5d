"""One model runs from start to table; ratios and faults are checked by hand."""

import subprocess
import sys

from benchmarks.first_step.plan import EACH, KERAS, ONCE, Growth
from benchmarks.first_step.report import Table
from tests.repository import ROOT


def test_all_ways_end_with_a_table():
    arguments = ["--model", "mlp", "--replicas", "2", "--rounds", "1"]
    argv = [sys.executable, "-m", "benchmarks.first_step", *arguments]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300)
    # 0: both ways of tfscale have logged the same loss.
    assert done.returncode == 0, done.stderr
    assert all(way in done.stdout for way in ("traced once", "traced by each", "plain Keras"))


def _growth(cpu_s, loss=1.0):
    return Growth(2 * cpu_s, cpu_s, 0.01, 0.1, 0.1, 1000, 500.0, loss, {})


def test_ratios_are_to_one_replica_and_to_keras():
    found = {("mlp", 1, ONCE): [_growth(2.0)], ("mlp", 8, ONCE): [_growth(5.0)], ("mlp", 8, KERAS): [_growth(20.0)]}
    row = Table(found).render().splitlines()[3]
    assert "2.50" in row
    assert "0.25" in row


def test_ways_that_train_apart_are_a_fault():
    found = {("mlp", 2, ONCE): [_growth(1.0)], ("mlp", 2, EACH): [_growth(1.0, loss=1.1)]}
    assert Table(found).faults()
    assert not Table({("mlp", 2, ONCE): [_growth(1.0)], ("mlp", 2, KERAS): [_growth(1.0, loss=9.0)]}).faults()
