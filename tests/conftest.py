"""Every test leaves the process as it found it."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes import SET_BY_IMPORTS, children
from tests.repository import ROOT

_SET_BY_PYTEST = {"PYTEST_CURRENT_TEST"}

# The files that take longest, in that order. Where one of them came last, one process would work and the others wait;
# `--no-loadscope-reorder` has pytest-xdist hand out files in the order in which tests were found.
LONGEST = (
    "training/test_contract.py",
    "training/test_contract_programs.py",
    "training/test_contract_counts.py",
    "training/step/test_logical_counts.py",
    "training/callbacks/test_non_finite_skip.py",
    "recovery/test_remote_runs.py",
    "recovery/test_resume.py",
    "gradients/compression/test_training.py",
    "chaos/test_chaos.py",
    "recovery/test_order.py",
    "recovery/test_kills.py",
    "training/callbacks/test_non_finite_watch.py",
    "examples/test_examples.py",
    "examples/test_pull_the_plug.py",
    "training/test_gone.py",
    "benchmarks/test_equal_progress.py",
    "examples/test_demo.py",
    "benchmarks/test_links.py",
    "programs/test_chosen.py",
    "training/check/test_step_check.py",
    "training/test_workers.py",
    "training/check/test_gates.py",
    "programs/test_programs.py",
    "parity/test_verification.py",
    "gradients/test_by_hand.py",
    "training/check/test_loop_numbers.py",
    "exact/test_batch_wide_layers.py",
    "data/test_equality.py",
    "replicas/test_one_trace.py",
    "exact/test_numbers_of_loops.py",
    "gradients/test_double_buffer.py",
    "training/callbacks/test_noise_scale.py",
    "training/test_calls_that_fail.py",
    "training/step/test_micro_batch.py",
    "training/check/test_thresholds.py",
    "training/callbacks/test_labels_read.py",
    "replicas/test_batch_rows.py",
    "data/test_two_workers.py",
    "training/test_data_of_loops.py",
    "test_docs.py",
    "training/step/test_several_data.py",
    "training/test_calls.py",
    "training/call/test_one_batch.py",
    "test_docstrings.py",
    "training/call/test_traced.py",
    "training/callbacks/test_epoch_ends.py",
    "exact/test_randomness.py",
    "training/step/test_hand_means.py",
    "replicas/test_all_reduce.py",
    "training/test_prepared_model.py",
    "data/test_passes.py",
    "training/step/test_input_wait.py",
    "training/check/test_quotients.py",
    "gradients/test_parts_of_sums.py",
    "replicas/test_branches.py",
    "training/call/test_joining.py",
    "test_processes.py",
    "training/callbacks/test_drift_watch.py",
    "data/test_files.py",
    "replicas/test_xla.py",
    "recovery/test_directory.py",
    "plan/test_branches.py",
    "training/check/test_kept_elsewhere.py",
    "training/check/test_conditions.py",
    "cluster/preflight/test_strangers.py",
    "study/test_law.py",
    "training/check/test_untold.py",
    "training/call/test_steps_per_call.py",
)

# A thread or process that was told to stop may need a moment.
_GRACE_S = 2.0

# In seconds since the epoch: a test that has not begun by then is skipped (`.ci/run` sets it).
BEGIN_UNTIL = "TFSCALE_TEST_BEGIN_UNTIL"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first."""
    place = {ROOT / "tests" / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begins no test, and makes nothing that it needs, when the time for all of them is over."""
    if time.time() > float(os.environ.get(BEGIN_UNTIL, "inf")):
        pytest.skip(f"no time left: {BEGIN_UNTIL} has passed")


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What plain Keras gives for each case, in a directory that all xdist workers of the run see."""
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "references"
    directory.mkdir(exist_ok=True)
    return directory


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fails a test that leaves an environment variable, a thread or a child process behind."""
    before = {"environment": _environment(), "threads": _threads(), "children": children()}
    yield
    assert _environment() == before["environment"], "an environment variable was left changed"
    assert not _left(_threads, before["threads"]), "a thread was left running"
    assert not _left(children, before["children"]), "a child process was left running"


def _environment() -> dict[str, str]:
    ignored = SET_BY_IMPORTS | _SET_BY_PYTEST
    return {name: value for name, value in os.environ.items() if name not in ignored}


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _left(find: Callable[[], set], before: set) -> set:
    deadline_s = time.monotonic() + _GRACE_S
    while (left := find() - before) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return left
