import os
import subprocess
import sys
import time

from tests.conftest import BEGIN_UNTIL
from tests.repository import ROOT


def test_a_test_is_begun_while_there_is_time():
    outcome = _outcome(until_s=time.time() + 600.0)
    assert "1 passed" in outcome


def test_what_has_not_begun_in_time_is_skipped_by_name():
    outcome = _outcome(until_s=time.time() - 1.0)
    assert "1 skipped" in outcome
    assert f"no time left: {BEGIN_UNTIL} has passed" in outcome


def _outcome(until_s: float) -> str:
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/test_longest.py")
    environment = os.environ | {BEGIN_UNTIL: str(until_s)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120).stdout
