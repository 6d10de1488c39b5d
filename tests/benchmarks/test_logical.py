"""One model runs from start to table; ratios and faults are checked by hand."""

import subprocess
import sys

from benchmarks.logical.plan import BITS, MICRO, NONE, WAYS, WITH, Cost
from benchmarks.logical.report import Table
from tests.repository import ROOT


def test_all_ways_end_with_a_table():
    argv = [sys.executable, "-m", "benchmarks.logical", "--model", "mlp", "--replicas", "1", "2", "--rounds", "1"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=400)
    # 0: all have logged the same loss, and the deterministic ones have ended in the same bits.
    assert done.returncode == 0, done.stderr
    assert [way for way in WAYS.values() if done.stdout.count(way) < 2] == []


def _cost(step_s, loss=1.0, digest="a"):
    return Cost(2.0, step_s, 4 * step_s * step_s, 500.0, loss, digest, {})


def test_ratios_are_within_a_round():
    found = {
        ("mlp", 2, NONE): [_cost(1.0), _cost(2.0)],
        ("mlp", 2, MICRO): [_cost(2.0), _cost(2.0)],
        ("mlp", 2, WITH): [_cost(2.0), _cost(6.0)],
        ("mlp", 2, BITS): [_cost(3.0), _cost(6.0)],
    }
    none, micro, logical, bits = Table(found).render().splitlines()[2:]
    assert "[" not in none
    assert "1.50 [1.00 .. 2.00]" in micro
    # Of 4 and 1, and of 1 and 1, times four.
    assert micro.split()[-4] == "2.50"
    assert "2.50 [2.00 .. 3.00]" in logical
    assert "2.00 [1.00 .. 3.00]" in logical
    assert ("3.00 [3.00 .. 3.00]" in bits, "2.25 [1.50 .. 3.00]" in bits, "1.25 [1.00 .. 1.50]" in bits) == (True,) * 3


def test_what_has_not_trained_the_same_is_a_fault():
    same = {("mlp", 1, BITS): [_cost(1.0)], ("mlp", 2, BITS): [_cost(2.0)], ("mlp", 2, WITH): [_cost(1.0, digest="b")]}
    assert Table(same).faults() == []
    assert "in 2 states" in Table({**same, ("mlp", 2, BITS): [_cost(1.0, digest="b")]}).faults()[0]
    assert "losses of 1.0 to 1.1" in Table({**same, ("mlp", 4, NONE): [_cost(1.0, loss=1.1)]}).faults()[0]
