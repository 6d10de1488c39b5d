"""A few jobs to which every kind of fault comes; `make soak` draws others, for as long as it is told."""

import json
import subprocess
import sys

import pytest

from tests.chaos.schedule import FAULTS, draw
from tests.repository import ROOT
from tfscale.launch.process_group import process_group

# Together they have every fault, on data of every promise, on as few workers as each fault needs.
SEEDS = (
    184,  # paused
    2309,  # network away, second run, sys.exit
    5712,  # network away, one killed
    8564,  # disk full, all killed, bytes changed
    8956,  # all killed, all damaged
    21308,  # all killed, note garbled
    21456,  # connections closed
    23419,  # all killed, data cut short
    41454,  # network down, note garbled, SIGTERM
    43734,  # stranger, one stopped, index gone
)
DEADLINE_S = 900


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """What came of each seed."""
    path = tmp_path_factory.mktemp("chaos") / "rows.json"
    command = [sys.executable, "-m", "tests.chaos", "--json", str(path), "--jobs", "1"]
    command += [part for seed in SEEDS for part in ("--seed", str(seed))]
    with process_group(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as runner:
        output, _ = runner.communicate(timeout=DEADLINE_S)
    assert path.exists(), output.decode(errors="replace")
    return {row["seed"]: row for row in json.loads(path.read_text())}


def test_every_kind_of_fault_is_among_them():
    assert {fault.kind for seed in SEEDS for fault in draw(seed).faults} == set(FAULTS)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost(rows, seed):
    assert rows[seed]["lost"] == "", "\n".join([str(draw(seed)), rows[seed]["lost"], *rows[seed]["log"]])


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_planned_came(rows, seed):
    planned = {fault.kind for fault in draw(seed).faults}
    # Without a network of its own a job keeps the one that it has.
    planned -= set() if rows[seed]["has_own_network"] else {"network down", "network away for 2 s"}
    assert set(rows[seed]["faults"]) == planned
