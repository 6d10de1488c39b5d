"""What the screen and the page show of the verdicts."""

import pytest

from tests.programs.judgement import Verdict
from tests.programs.program import Program
from tests.programs.table import between_markers, for_readme, for_screen, reported_for_readme


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


def test_rows_of_programs_that_were_not_run_stay(rows):
    order = [program for program, _ in rows]
    earlier = "| mixing | As it was. | refused (`DataError`) |\n| wrong | It was. | equal |\n| gone | It was. | equal |"
    assert for_readme([rows[0], rows[2]], order, earlier).splitlines() == [
        "3 programs: **1 equal**, 1 refused, 1 different.",
        "",
        "| program | what it is | verdict |",
        "|---|---|---|",
        "| good | Program good. | equal |",
        "| mixing | As it was. | refused (`DataError`) |",
        "| wrong | Program wrong. | **different** |",
    ]


def test_screen_shows_every_run_and_what_was_said(rows):
    assert for_screen(rows).splitlines()[1:] == [
        "good     equal      equal",
        "mixing   equal      refused    ParityError: rows are mixed",
        "wrong    error      different  ValueError: x; a by 1",
    ]


def test_reports_are_linked_to_their_threads(tmp_path):
    path = tmp_path / "keras_20585.py"
    path.write_text('"""keras#20585: `fit` does not start."""\nREPORTED = "keras#20585"')
    assert reported_for_readme([(Program(path), {"N=1": Verdict("equal")})]).splitlines() == [
        "1 reports: **1 equal**.",
        "",
        "| thread | what was reported | here |",
        "|---|---|---|",
        "| [keras#20585](https://github.com/keras-team/keras/issues/20585) | `fit` does not start | equal |",
    ]


def test_summary_stands_between_its_markers():
    begin, end = "<!-- reported:begin -->", "<!-- reported:end -->"
    text = f"a\n{begin}\nold\n{end}\nb\n"
    assert between_markers(text, "reported", "new") == f"a\n{begin}\nnew\n{end}\nb\n"
    with pytest.raises(ValueError, match="once each"):
        between_markers(text, "programs", "new")
