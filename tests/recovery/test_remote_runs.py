"""Runs that keep their state in a store: TensorFlow's own for tests, and gs:// by its own client."""

import json
import os
import shutil
import signal

import numpy as np
import pytest

from tests.processes import CaseError, run_case, run_workers
from tests.recovery.fake_gcs import FakeGcs, serve
from tests.training.together import Failure, run_together

CASES = "tests.recovery.cases_remote"
DIRECTORY = "gs://bucket/a run"

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")


@pytest.fixture(scope="module")
def on_ram():
    names = ("on_ram", "inside_of_a_run", "with_the_callbacks_of_dp")
    found = run_together([(f"{CASES}:{name}", ()) for name in names], timeout_s=300)
    assert [each for each in found.values() if isinstance(each, Failure)] == []
    return {target.partition(":")[2]: result for (target, _), result in found.items()}


@pytest.fixture
def store(tmp_path):
    """The stand-in, and the environment of a process that is to use it."""
    gcs = FakeGcs("bucket")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with serve(gcs, tmp_path) as environment:
        yield gcs, {**environment, "TMPDIR": str(scratch), "GCS_RETRY_CONFIG_MAX_RETRIES": "0"}


def check_equal(one_go, continued):
    for kind in ("weights", "optimizer"):
        for expected, value in zip(one_go[kind], continued[kind], strict=True):
            np.testing.assert_array_equal(value, expected)
    assert continued["history"] == one_go["history"]


def test_a_run_on_ram_goes_on_bit_for_bit(on_ram):
    found = on_ram["on_ram"]
    check_equal(found["one go"], found["continued"])
    assert [line for line in found["said"] if "goes on in epoch 2 after 2 of its steps, from ram://tests/run/" in line]


def test_a_run_inside_of_a_run_is_refused(on_ram):
    assert "'ram://tests/inside', which this very process has used" in on_ram["inside_of_a_run"]


def test_all_callbacks_write_to_a_store(on_ram):
    found = on_ram["with_the_callbacks_of_dp"]
    assert [line.partition(",")[0] for line in found["csv"].split()] == ["epoch", "0", "1", "2"]
    assert "ram://tests/all/scaling/events.out" in found["scaling"]


UNLIKE = {
    "chief alone": "Received: worker 0 has every_steps=3; worker 1 has no `Recovery`. Give every worker the same",
    "by rank": "worker 0 has every_steps=3; worker 1 has every_steps=4",
    "by time": "worker 0 has one that saves by the clock; worker 1 has every_steps=3",
    "ChiefOnly": "Received: one inside of a `ChiefOnly`. Give it to `fit` as it is, on every worker.",
}


def test_the_chief_alone_has_to_do_with_a_store():
    chief, other = run_workers(f"{CASES}:on_workers", 2, args=("ram://tests/workers",))
    assert chief["objects"]
    assert other["objects"] == []
    assert "none of which can be read" in chief["refused"]
    assert other["refused"] == chief["refused"]
    assert other["unlike"] == chief["unlike"]
    for name, said in UNLIKE.items():
        assert said in chief["unlike"][name]


def folders(scratch):
    return [path for path in scratch.glob("tfscale-recovery-*") if path.is_dir()]


# A kill at the third manifest is one between the upload and the manifest; one at data, in the midst of an upload.
@needs_openssl
@pytest.mark.parametrize("at", [".json", ".data-00000-of-00001"])
def test_a_killed_process_goes_on_at_once_on_its_host(store, tmp_path, at):
    gcs, environment = store
    seen = []

    def fault(method, address):
        if method == "POST" and address.endswith(at):
            seen.append(address)
            if len(seen) == 3:
                os.kill(json.loads(gcs.objects["a run/lock"])["pid"], signal.SIGKILL)
                return 503
        return None

    gcs.fault = fault
    with pytest.raises(CaseError):
        run_case(f"{CASES}:begin", args=(DIRECTORY,), env=environment)
    gcs.fault = lambda method, address: None
    half = {name for name in gcs.objects if name.endswith(("-3.index", "-3.data-00000-of-00001"))}
    assert len(half) == (2 if at == ".json" else 0)
    assert folders(tmp_path / "scratch")
    found = run_case(f"{CASES}:go_on", args=(DIRECTORY,), env=environment)
    check_equal(found["one go"], found["continued"])
    [line] = [line for line in found["said"] if line.startswith("goes on in epoch 1 after")]
    assert f"from {DIRECTORY}/" in line
    # Nobody waits for a lease to run out.
    assert found["seconds"] < 60
    assert [line for line in found["said"] if "If that process is dead" in line] == []
    # Neither the store nor this host keeps what was half done, nor the lease.
    stems = {name.partition(".")[0] for name in gcs.objects}
    assert {f"{stem}.json" for stem in stems} <= gcs.objects.keys()
    assert len(stems) == 6
    assert folders(tmp_path / "scratch") == []


@needs_openssl
def test_a_store_that_refuses_is_named_before_training(store):
    gcs, environment = store
    gcs.fault = lambda method, address: 403 if "denied" in address else None
    names = ("gs://bucket/denied", "gs://nobucket/run")
    found = run_case(f"{CASES}:refused", args=(names,), env=environment)
    for name, part in zip(names, ("code 403 with body 'on purpose'", "Make the bucket"), strict=True):
        said, seconds = found[name]
        assert f"{name}/lock" in said
        assert part in said
        assert seconds < 20
    assert gcs.objects == {}


@needs_openssl
def test_training_does_not_suffer_from_a_store_that_fails(store):
    gcs, environment = store
    posts = []

    def fault(method, address):
        if method == "POST" and "/state-" in address:
            posts.append(address)
            return 503 if 6 < len(posts) <= 10 else None
        return None

    gcs.fault = fault
    found = run_case(f"{CASES}:with_a_store_that_fails", args=(DIRECTORY,), env=environment)
    check_equal(found["one go"], found["saving"])
    assert len([line for line in found["said"] if "NOT SAVED" in line]) >= 1
    gcs.fault = lambda method, address: None
    newest = max(int(name.rpartition("-")[2][:-5]) for name in gcs.objects if name.endswith(".json"))
    assert newest > 6
