"""The benchmark of the meeting: what it counts is what a reader can work out."""

import subprocess
import sys

from tests.repository import ROOT
from tfscale.cluster.preflight.layout import find_partners


def test_a_row():
    argv = [sys.executable, "-m", "benchmarks.meeting", "--workers", "20", "--processes", "2"]
    printed = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120).stdout
    heading, _, row = printed.splitlines()
    assert [cell.strip() for cell in heading.strip("|").split("|")][-2:] == ["connections", "messages"]
    workers, seconds, processor_ms, files, connections, messages = (cell.strip() for cell in row.strip("|").split("|"))
    assert workers == "20"
    assert float(seconds) > 0.0
    assert float(processor_ms) > 0.0
    # A worker listens, selects, and has calls open both ways.
    assert 3 < int(files) < 100
    expected = sum(len(find_partners(rank, 20)) for rank in range(20))
    # One process may call before the other listens; it is refused, which is no connection.
    assert expected <= int(connections) < 2 * expected
    assert int(messages) >= 4 * expected
