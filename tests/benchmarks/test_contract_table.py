import pytest

from benchmarks.contract import TABLES, render
from tests.programs.table import between_markers
from tests.repository import ROOT

BEGIN, END = "<!-- contract:begin -->", "<!-- contract:end -->"


def test_table_takes_the_place_of_the_old_one():
    text = f"before\n{BEGIN}\n| old |\n{END}\nafter\n"
    once = between_markers(text, "contract", "| new |")
    assert once == f"before\n{BEGIN}\n| new |\n{END}\nafter\n"
    assert between_markers(once, "contract", "| new |") == once


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}"])
def test_markers_that_are_not_there(text):
    with pytest.raises(ValueError, match="once each, in this order"):
        between_markers(text, "contract", "| new |")


@pytest.mark.parametrize("name", TABLES)
def test_a_line_for_each_row(name):
    rows = TABLES[name]
    lines = render(rows, [("crash", "equal (1e-07)")] * len(rows)).splitlines()
    assert len(lines) == len(rows) + 2
    assert {line.count("|") for line in lines} == {5}


@pytest.mark.parametrize("name", TABLES)
def test_page_shows_every_row_as_equal(name):
    _, _, rest = (ROOT / "docs/contract.md").read_text().partition(f"<!-- {name}:begin -->\n")
    lines = rest.partition(f"<!-- {name}:end -->")[0].splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {row.title}" for row in TABLES[name]]
    assert all(line.split(" | ")[2].startswith("equal") for line in lines[2:])
