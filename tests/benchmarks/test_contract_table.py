import pytest

from benchmarks.contract import BEGIN, END, between_markers, render
from tests.training.contract_rows import ROWS


def test_table_takes_the_place_of_the_old_one():
    text = f"before\n{BEGIN}\n| old |\n{END}\nafter\n"
    once = between_markers(text, "| new |")
    assert once == f"before\n{BEGIN}\n| new |\n{END}\nafter\n"
    assert between_markers(once, "| new |") == once


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}"])
def test_markers_that_are_not_there(text):
    with pytest.raises(ValueError, match="once each, in this order"):
        between_markers(text, "| new |")


def test_a_line_for_each_row():
    lines = render(ROWS, [("crash", "equal (1e-07)")] * len(ROWS)).splitlines()
    assert len(lines) == len(ROWS) + 2
    assert {line.count("|") for line in lines} == {5}
