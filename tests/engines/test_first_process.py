"""The first process of a container: SIGTERM does nothing to it by itself."""

import signal
import sys

import psutil
import pytest

from tests.engines import jobs
from tests.engines.running import end, start, wait_until


@pytest.fixture(autouse=True)
def namespaces_are_there(needs):
    needs("namespaces")


@pytest.mark.parametrize("more", [[], ["--recovery"]], ids=["alone", "with Recovery"])
def test_sigterm_ends_it(tmp_path, more):
    train = [sys.executable, "-m", "tests.engines.jobs", str(tmp_path), "--step-s", "0.3", "--epochs", "50", *more]
    process = start(["unshare", "--pid", "--fork", "--kill-child", *train])
    try:
        wait_until(lambda: len(jobs.read_notes(tmp_path, "step")) > 3, process)
        assert {each["pid"] for each in jobs.read_notes(tmp_path, "begins")} == {1}
        [inside] = psutil.Process(process.pid).children()
        inside.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=60)[0]
    finally:
        end(process)
    assert process.returncode == 143, output
    assert ("SIGTERM: saved in epoch" in output) == bool(more)
    assert ("nothing here saves the run" in output) == (not more)
