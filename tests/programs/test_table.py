"""What the screen and the README show of the verdicts."""

import pytest

from tests.programs.judgement import Verdict
from tests.programs.program import Program
from tests.programs.table import BEGIN, END, between_markers, for_readme, for_screen


@pytest.fixture
def rows(tmp_path):
    def program(name):
        path = tmp_path / f"{name}.py"
        path.write_text(f'"""Program {name}."""')
        return Program(path)

    return [
        (program("good"), {"N=1": Verdict("equal"), "N=2": Verdict("equal")}),
        (program("mixing"), {"N=1": Verdict("equal"), "N=2": Verdict("refused", "ParityError: rows are mixed")}),
        (program("wrong"), {"N=1": Verdict("error", "ValueError: x"), "N=2": Verdict("different", "a by 1")}),
    ]


def test_summary_counts_each_program_by_its_worst_verdict(rows):
    assert for_readme(rows).splitlines() == [
        "3 programs: **1 equal**, 1 refused, 1 different.",
        "",
        "| program | what it is | verdict |",
        "|---|---|---|",
        "| good | Program good. | equal |",
        "| mixing | Program mixing. | refused (`ParityError`) |",
        "| wrong | Program wrong. | **different** |",
    ]


def test_screen_shows_every_run_and_what_was_said(rows):
    assert for_screen(rows).splitlines()[1:] == [
        "good     equal      equal",
        "mixing   equal      refused    ParityError: rows are mixed",
        "wrong    error      different  ValueError: x; a by 1",
    ]


def test_summary_stands_between_its_markers():
    assert between_markers(f"a\n{BEGIN}\nold\n{END}\nb\n", "new") == f"a\n{BEGIN}\nnew\n{END}\nb\n"
    with pytest.raises(ValueError, match="once each"):
        between_markers("no markers", "new")
