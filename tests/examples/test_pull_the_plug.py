"""The pull-the-plug demonstration, with one kill."""

import re

from tests.processes import run_case


def test_smoke():
    printed = run_case("tests.examples.cases_examples:run_script", args=("pull_the_plug.py", "--smoke"), timeout_s=280)
    assert printed.count("--- pulling the plug of worker 1: kill -9 ") == 1
    assert "with signal SIGKILL" in printed
    # Pulled before step 5 of the second epoch, after the save of step 15.
    assert "goes on in epoch 2 after 3 of its steps" in printed
    seconds = re.search(r"<- (\S+) s after the plug was pulled", printed)
    assert 3 < float(seconds[1]) < 120
    rows = re.findall(r"^ +(\d) +(\S+) +(\S+) +(\S+) and (\S+)$", printed, re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "2"]
    for _, alone, killed, accuracy, other in rows:
        assert abs(float(alone) - float(killed)) <= 1e-5
        assert accuracy == other
    assert "Nothing was lost." in printed
