"""What the command says about itself: the overview, an example each, and one table of exit statuses."""

import argparse
import io
import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.repository import ROOT
from tfscale import cli
from tfscale.console import chart
from tfscale.console.commands import COMMANDS, REFUSED
from tfscale.console.screen import Progress, is_rich, show_table


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_alone_it_shows_what_can_be_done(capsys):
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    assert [name for name in COMMANDS if f"  {name} " not in shown] == []


def test_every_command_is_in_the_table():
    parser = cli.make_parser()
    [commands] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    assert set(commands.choices) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_that_is_one(name, capsys):
    words = shlex.split(COMMANDS[name].example)
    assert words[:2] == ["tfscale", name]
    cli.make_parser().parse_args(words[1:])
    with pytest.raises(SystemExit, match="0"):
        cli.main([name, "--help"])
    shown = capsys.readouterr().out
    assert f"example:\n  {COMMANDS[name].example}\n" in shown
    assert f"  2  {REFUSED}" in shown
    assert "\n  --json  " in shown


def test_document_has_the_same_exit_statuses():
    text = (ROOT / "docs" / "command_line.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (.+) \|$", text, re.MULTILINE)
    assert rows == [
        (command.name, str(status), meaning)
        for command in COMMANDS.values()
        for status, meaning in command.statuses.items()
    ]
    assert f"| all | 2 | {REFUSED} |" in text


def test_rich_is_for_terminals_that_want_it():
    assert is_rich(Terminal(), {})
    for name in ("NO_COLOR", "TFSCALE_PLAIN"):
        assert not is_rich(Terminal(), {name: "1"})
    assert not is_rich(Terminal(), {"TERM": "dumb"})
    assert not is_rich(io.StringIO(), {})


def test_without_rich_a_terminal_gets_the_text(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    shown = Terminal()
    assert not is_rich(shown, {})
    with Progress(stream=shown, environ={}) as progress:
        progress.begin("2 replicas")
    assert shown.getvalue() == "running 2 replicas\n"


def test_shells_are_told_commands_and_flags(tmp_path):
    def complete(line):
        told = tmp_path / "told"
        env = {**os.environ, "_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
        env |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(told), "_ARGCOMPLETE_IFS": "\n"}
        command = [sys.executable, "-m", "tfscale", *line.split()[1:]]
        subprocess.run(command, env=env, cwd=ROOT, capture_output=True, timeout=60, check=True)
        return {each.strip() for each in told.read_text().split("\n")}

    assert complete("tfscale ") >= set(COMMANDS)
    assert complete("tfscale ver") == {"verify"}
    assert complete("tfscale launch --max") == {"--max-restarts"}


def test_table_and_bar_hold_what_the_text_holds():
    shown = Terminal()
    show_table("a [title]", ("run", "verdict"), [("2 [replicas]", "equal")], ["Equal."], stream=shown)
    assert [each for each in ("a [title]", "2 [replicas]", "equal", "Equal.") if each not in shown.getvalue()] == []
    with Progress(stream=shown, environ={}) as progress:
        progress.begin("2 replicas")
        progress.end("batch [16]: reached", 3)
    assert "batch [16]: reached" in shown.getvalue()


def test_lines_without_a_terminal():
    shown, now_s = io.StringIO(), [0.0]
    with Progress(stream=shown, environ={}, clock=lambda: now_s[0], of=" of this round") as progress:
        progress.tell("before")
        now_s[0] = 4.0
        progress.end("one", 3)
    assert shown.getvalue() == "before\none; 3 left of this round, about 12 s\n"
    shown.truncate(0)
    with Progress(2, stream=shown, environ={}, clock=lambda: now_s[0]) as progress:
        progress.begin("1 replica")
        now_s[0] = 9.0
        progress.begin("2 replicas")
        progress.begin("what came on top")
    lines = ["running 1 replica", "running 2 replicas; about 5 s left", "running what came on top"]
    assert shown.getvalue().lstrip("\0").splitlines() == lines


@pytest.mark.parametrize(("low", "high"), [(0.115, 0.9), (0.51, 1.49), (0.42, 0.58), (1e-9, 2e-9), (-3, 1e6), (0, 1)])
def test_an_axis_has_three_numbers_or_more(low, high):
    ticks = chart._ticks(low, high)
    assert 3 <= len(ticks) <= 12
    assert low - 1e-9 * high <= ticks[0] < ticks[-1] <= high * (1 + 1e-9)


@pytest.mark.parametrize(
    "points", [[], [(1, float("nan"))], [(1, 0.0)], [(1, 5.0)], [(1, 1e-300), (2, 1e300)], [(1, -1), (1, 3)]]
)
@pytest.mark.parametrize("log_y", [False, True])
def test_charts_of_anything(points, log_y):
    drawn = chart.lines("a & b", {"c": points}, x="x", y="y", log_y=log_y)
    assert "a &amp; b" in drawn
    assert "nan" not in drawn
    assert "inf" not in drawn
