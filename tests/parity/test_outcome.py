import numpy as np
import pytest

from tfscale.parity.outcome import (
    QUANTITIES,
    DataFacts,
    ModelFacts,
    Outcome,
    is_complete,
    load_outcome,
    load_start,
    save_outcome,
)
from tfscale.parity.request import Failure, Request, Script, load_failure, load_request, save_failure, save_request
from tfscale.parity.run_spec import RunSpec
from tfscale.parity.target import Target


def test_outcome_survives_files(tmp_path):
    arrays = {name: {} for name in QUANTITIES}
    arrays["weights"] = {"b/odd: name": np.ones((2, 3), np.float32), "a": np.array(3, np.int64)}
    arrays["predict"] = {"output 0": np.array(["x", "yy"], object)}
    outcome = Outcome(
        start={"b": np.zeros(2), "a": np.ones(1)},
        arrays=arrays,
        model=ModelFacts(own_steps=("train_step",), random_off=("dropout (Dropout)",), clips=True),
        data=DataFacts(global_batch=8, num_steps=2, batches=(2, 8), digest="digest"),
    )
    assert not is_complete(tmp_path)
    save_outcome(outcome, tmp_path)
    assert is_complete(tmp_path)
    loaded = load_outcome(tmp_path)
    assert (loaded.model, loaded.data) == (outcome.model, outcome.data)
    assert list(loaded.arrays["weights"]) == ["b/odd: name", "a"]
    assert loaded.arrays["weights"]["a"].dtype == np.int64
    assert loaded.arrays["predict"]["output 0"].tolist() == [b"x", b"yy"]
    assert [array.tolist() for array in load_start(tmp_path)] == [[0, 0], [1]]


def test_request_survives_files(tmp_path):
    script = Script(Target("a.py", "build"), Target("b", "data"), 2, 7, None, ("x", "y"))
    request = Request(RunSpec("tfscale", 3), script, start="somewhere")
    save_request(request, tmp_path)
    assert load_request(tmp_path) == request


def test_failure_survives_files(tmp_path):
    assert load_failure(tmp_path) is None
    save_failure(Failure("ValueError", "one\ntwo", "trace"), tmp_path)
    assert load_failure(tmp_path) == Failure("ValueError", "one\ntwo", "trace")


@pytest.mark.parametrize(
    ("message", "line"), [("one\ntwo", "ValueError: one"), ("\n one", "ValueError: one"), ("", "ValueError")]
)
def test_first_line(message, line):
    assert Failure("ValueError", message, "").first_line == line


@pytest.mark.parametrize(
    ("batches", "num_replicas", "evenly"), [((8,), 2, True), ((8,), 3, False), ((6, 8), 2, True), ((8, 9), 1, True)]
)
def test_splits_evenly(batches, num_replicas, evenly):
    assert DataFacts(8, 3, batches, "").splits_evenly(num_replicas) is evenly
