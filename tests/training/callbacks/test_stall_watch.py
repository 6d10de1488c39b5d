"""Two real workers, one of which is late, or corrupted."""

import pytest

from tests.processes import run_workers
from tests.training.callbacks.cases_watches import LATE_S
from tfscale import CallbackError
from tfscale.callbacks import StallWatch

MODULE = "tests.training.callbacks.cases_watches"


@pytest.fixture(scope="module")
def workers():
    return run_workers(f"{MODULE}:watched", 2)


def test_callbacks_of_a_job(workers):
    assert [found["kinds"] for found in workers] == [
        ["ScalingReport", "NonFiniteWatch", "DriftWatch", "StallWatch"],
        ["NonFiniteWatch", "DriftWatch", "StallWatch"],
    ]


def test_nothing_is_said_while_all_is_well(workers):
    assert [text for found in workers for text in found["quiet"] if "fit takes" in text or "differ" in text] == []


def test_late_worker_is_named_by_the_chief(workers):
    chief, other = (found["late"] for found in workers)
    assert LATE_S > 2
    assert any(
        text.startswith("step 6 of this fit takes longer than 1 s. Not arrived: worker 1 (127.0.0.1:")
        and text.endswith("; it is between steps, after step 5).")
        for text in chief
    )
    assert "The step goes on." in chief
    assert not any("takes longer" in text for text in other)


def test_corrupted_worker_is_named_by_all(workers):
    for found in workers:
        assert "in step 8 of this fit, replica 1 (worker 1) differs from replica 0 (worker 0)" in found["error"]


def test_no_thread_is_left(workers):
    assert [found["threads"] for found in workers] == [[], []]


@pytest.mark.parametrize("stall_s", [0, -1, True, "60", None, float("inf"), float("nan")])
def test_bad_seconds(stall_s):
    with pytest.raises(CallbackError, match="`stall_s` must be a positive number of seconds"):
        StallWatch(stall_s)


@pytest.mark.parametrize("ends_after_s", [0, -1, True, "60", float("inf"), float("nan"), 59])
def test_bad_end(ends_after_s):
    with pytest.raises(CallbackError, match="`ends_after_s` must be a number of seconds, at least `stall_s`, or None"):
        StallWatch(60, ends_after_s=ends_after_s)
