"""The table of what was tried: counts, and what was lost."""

from tests.chaos.schedule import DATA, FAULTS
from tests.chaos.table import Row, for_notes, summary

ROWS = [
    Row(1, "tf.data in order", ["one killed", "disk full"], starts=2),
    Row(2, "tf.data in order", ["one killed", "all damaged"], starts=3, begun_anew=1),
    Row(7, "generator", ["one killed"], lost="worker 0 hangs", starts=1),
]


def test_summary():
    assert summary(ROWS) == (
        "3 jobs, 6 starts: **5 faults tried, 4 survived, 1 jobs lost**. "
        "1 of the damages left no state, said so, and the run began anew."
    )
    assert summary([]) == "0 jobs, 0 starts: **0 faults tried, 0 survived, 0 jobs lost**."


def test_rows_and_columns():
    lines = for_notes(ROWS, "Seeds 1 to 7.").splitlines()
    assert lines[0].endswith(" Seeds 1 to 7.")
    table = [line.strip("| ").split(" | ") for line in lines[2:] if line.startswith("|")]
    assert table[0] == ["fault", *DATA, "all"]
    cells = {row[0]: dict(zip(table[0][1:], row[1:], strict=True)) for row in table[2:]}
    assert list(cells) == list(FAULTS)
    assert cells["one killed"]["tf.data in order"] == "2"
    assert cells["one killed"]["generator"] == "**0 of 1**"
    assert cells["one killed"]["all"] == "**2 of 3**"
    assert cells["disk full"]["all"] == "1"
    assert cells["paused"]["all"] == "-"
    assert lines[-1] == "Lost: seed 7, generator (python -m tests.chaos --seed 7)."
