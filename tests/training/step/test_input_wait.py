"""What training steps wait for their batches is measured where the batches are taken."""

import json

import pytest

from tests.processes import run_case
from tests.training.step.cases_input_wait import BATCHES, EPOCHS

CASES = "tests.training.step.cases_input_wait"


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("steps_per_execution", [1, 5, None])
def test_slow_data(tmp_path, num_replicas, steps_per_execution):
    pause_s = 0.05
    found = run_case(f"{CASES}:slow_data", args=(num_replicas, steps_per_execution, pause_s, str(tmp_path)))
    # The first batch of an epoch may be there before its first step.
    assert found["waited_s"] > 0.7 * EPOCHS * (BATCHES - 2) * pause_s
    assert found["waited_s"] < found["took_s"]
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert len(epochs) == EPOCHS
    for line in epochs:
        assert 0.5 * (BATCHES - 6) * pause_s < line["input_s"] <= line["total_s"]
        # No link was measured between devices of one process.
        assert "sending_s" not in line


def test_data_that_are_there(tmp_path):
    found = run_case(f"{CASES}:slow_data", args=(2, 1, 0.0, str(tmp_path)))
    assert 0.0 < found["waited_s"] < 0.5


def test_nothing_is_measured_where_operations_are_deterministic():
    assert run_case(f"{CASES}:deterministic", fresh=True) is None
