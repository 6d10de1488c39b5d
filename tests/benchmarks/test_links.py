"""The arithmetic behind the tables; and one short run, where there can be networks."""

import json
import subprocess
import sys

import pytest

from benchmarks.links import network
from benchmarks.links.came_true import Time, verdict
from benchmarks.links.options import ALONE, OPTIONS, REFERENCE
from benchmarks.links.report import Block, render, rows_of
from benchmarks.links.timeline import Event, draw, overlapped_us
from tests.repository import ROOT

_TIMEOUT_S = 240


def blocks(rate, seconds, sent_bytes=1_250_000.0, rounds=3):
    """As many rounds of each option; `seconds` by label, and 1 for all others."""
    return [
        Block("mlp", rate, option.label, index, seconds.get(option.label, 1.0), sent_bytes)
        for index in range(rounds)
        for option in OPTIONS
    ]


def row_of(rows, label):
    [row] = [row for row in rows if row.option == label]
    return row


@pytest.mark.parametrize(
    ("rate", "alone_s", "limit_s"),
    # 1.25 MB are 10 Mbit: 10 ms and 100 ms.
    [("none", 0.002, 0.002), ("1gbit", 0.002, 0.01), ("1gbit", 0.02, 0.02), ("100mbit", 0.02, 0.1)],
)
def test_limit(rate, alone_s, limit_s):
    rows = rows_of(blocks(rate, {ALONE: alone_s}))
    assert row_of(rows, REFERENCE).limit_s == pytest.approx(limit_s)


@pytest.mark.parametrize(("step_s", "passed"), [(0.0114, True), (0.0116, False)])
def test_bar_of_the_limit(step_s, passed):
    rows = rows_of(blocks("1gbit", {ALONE: 0.002, "bf16, packs": step_s}))
    assert row_of(rows, "bf16, packs").passed is passed
    assert row_of(rows, REFERENCE).passed is None


@pytest.mark.parametrize(("step_s", "passed"), [(0.124, True), (0.126, False)])
def test_bar_of_power_sgd(step_s, passed):
    label = "PowerSGD, rank 2"
    assert row_of(rows_of(blocks("100mbit", {label: step_s})), label).passed is passed
    assert row_of(rows_of(blocks("1gbit", {label: step_s})), label).passed is None


def test_table_has_a_line_for_each_row():
    rows = rows_of(blocks("none", {}) + blocks("1gbit", {}))
    assert len(rows) == 2 * len(OPTIONS)
    assert len(render(rows).splitlines()) == len(rows) + 2


def test_overlap_is_what_both_have_in_common():
    heavy = [Event(False, start, start + 10) for start in (0, 20, 40)]
    collectives = [Event(True, 5, 15), Event(True, 18, 32), Event(True, 60, 70)]
    events = sorted([*heavy, *collectives], key=lambda event: event.start_us)
    # 5 of the first, all of the second, nothing of the third.
    assert overlapped_us(events) == 15
    computing, sent = draw(events, width=71).splitlines()
    assert computing[15:].rstrip() == "#" * 11 + " " * 9 + "#" * 11 + " " * 9 + "#" * 11
    assert sent.rstrip().endswith(" " + "#" * 11)


FORETOLD = {1: Time(600, 0.04), 2: Time(320, 0.18), 4: Time(170, 0.25)}


@pytest.mark.parametrize(
    ("run", "is_true", "order"),
    [
        ({1: Time(590, 0.05), 2: Time(300, 0.2), 4: Time(160, 0.3)}, True, "1 < 4 < 2"),
        # Each is near, and four replicas are slower than two.
        ({1: Time(590, 0.05), 2: Time(300, 0.17), 4: Time(190, 0.3)}, False, "1 < 2 < 4"),
        # The order is right, and one replica takes twice as long.
        ({1: Time(600, 0.08), 2: Time(320, 0.2), 4: Time(170, 0.3)}, False, "1 < 4 < 2"),
    ],
)
def test_what_came_true_of_a_forecast(run, is_true, order):
    text, found = verdict(FORETOLD, [run])
    assert found is is_true
    assert f"order foretold 1 < 4 < 2; came true {order}: " in text


def test_a_short_run(tmp_path):
    command = [sys.executable, "-m", "benchmarks.links", "--model", "mlp", "--rates", "100mbit", "--rounds", "1"]
    command += ["--block-seconds", "0.01", "--steps-per-call", "2", "--results", str(tmp_path / "links.jsonl")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if network.obstacle():
        assert done.returncode == 0
        assert "Skipped" in done.stderr
        return
    # 1: a few steps, here where others use the machine, may miss a bar.
    assert done.returncode in (0, 1), done.stderr
    assert "bf16, packs" in done.stdout, done.stderr
    measured = [json.loads(line) for line in (tmp_path / "links.jsonl").read_text().splitlines()]
    sent = {block["option"]: block["sent_bytes"] for block in measured}
    assert sent[REFERENCE] > 1.8 * sent["bf16, packs"] > 18 * sent["PowerSGD, rank 2"]


def test_links_can_be_put_in_again_before_the_last_networks_are_cleared():
    if network.obstacle():
        pytest.skip(network.obstacle())
    # Networks live as long as these processes, and keep their ends of the links.
    script = """
import subprocess
from benchmarks.links import network
waiting = ["unshare", "--net", "sh", "-c", "echo; exec sleep 60"]
sleepers = [subprocess.Popen(waiting, stdout=subprocess.PIPE) for _ in range(6)]
for each in sleepers:
    each.stdout.readline()
try:
    for some in (sleepers[:3], sleepers[3:]):
        network.join([each.pid for each in some])
        network.part()
finally:
    for each in sleepers:
        each.kill()
        each.communicate()
"""
    command = [*network.unshare(), sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60.0)
    assert done.returncode == 0, done.stderr
