"""The checks of the built site find what is wrong with one; `make docs` runs them on ours."""

import runpy
from pathlib import Path

import pytest

from tests.repository import ROOT

LOOKED = runpy.run_path(str(ROOT / "docs" / "look.py"))
problems = runpy.run_path(str(ROOT / "docs" / "check_site.py"))["problems"]


def made(tmp_path, body, other="<h1 id='b'>B</h1>"):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "other.html").write_text(other)
    (tmp_path / "a.svg").write_text("<svg/>")
    (tmp_path / "index.html").write_text(
        f"<head><link rel='canonical' href='https://x.org/'></head><h1 id='a'>{body}</h1>"
    )
    return problems(tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        "<a href='more/other.html'>b</a><a href='more/other.html#b'>b</a><a href='#a'>a</a><a href='more/../#a'>a</a>",
        "<a href='https://x.org/'>x</a><a href='mailto:a@b'>m</a>",
        "<img src='a.svg' alt='A'><link rel='stylesheet' href='a.svg?x=1'>",
    ],
)
def test_what_is_whole(tmp_path, body):
    assert made(tmp_path, body) == []


def test_a_site_below_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert made(Path("."), "<a href='#a'>a</a><a href='more/other.html#b'>b</a><a href='#c'>c</a>") == [
        "index.html: there is no such place: #c"
    ]


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("<a href='none.html'>b</a>", "index.html: leads nowhere: none.html"),
        ("<a href='more/'>b</a>", "index.html: leads nowhere: more/"),
        ("<a href='../secret'>b</a>", "index.html: leads nowhere: ../secret"),
        ("<a href='more/other.html#c'>b</a>", "index.html: there is no such place: more/other.html#c"),
        ("<a href='#c'>b</a>", "index.html: there is no such place: #c"),
        ("<img src='b.svg' alt='B'>", "index.html: leads nowhere: b.svg"),
        ("<img src='a.svg'>", "index.html: a picture without a text in its place: a.svg"),
        ("<script src='https://x.org/a.js'></script>", "index.html: needs the network: https://x.org/a.js"),
        ("<link rel='stylesheet' href='//x.org/a.css'>", "index.html: needs the network: //x.org/a.css"),
    ],
)
def test_what_is_wrong(tmp_path, body, shown):
    assert made(tmp_path, body) == [shown]


def test_a_site_without_pages_is_none(tmp_path):
    assert problems(tmp_path) == [f"{tmp_path}: there is no page"]


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({}, []),
        ({"wider": 3}, ["a.html, 375 px wide, dark: 3 px wider than the window"]),
        ({"broken": ["b.svg"]}, ["a.html, 375 px wide, dark: broken: b.svg"]),
        ({"dark": False}, ["a.html, 375 px wide, dark: is not"]),
    ],
)
def test_what_a_browser_saw_is_judged(changed, shown):
    found = {"page": "a.html", "wider": 0, "dark": True, "pictures": 1, "broken": []}
    assert LOOKED["problems"]([found | changed], 375, "dark") == shown


def test_without_a_browser_it_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert LOOKED["main"](tmp_path, tmp_path / "looks") == 1
    assert "there is no Chromium" in capsys.readouterr().out
