"""The page on what comes with tfscale has every dependency that setup.cfg names, and every extra."""

import configparser
import re
import runpy

import pytest

from tests.repository import ROOT

SCRIPT = runpy.run_path(str(ROOT / "docs" / "dependencies.py"))
PAGE = (ROOT / "docs" / "dependencies.md").read_text()


@pytest.fixture(scope="module")
def said():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def _rows(heading):
    """The cells of a table, without its head."""
    table = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*) \|$", table, re.MULTILINE)
    return [row.split(" | ") for row in rows[1:]]


def test_every_direct_dependency_has_its_licence_and_the_extras_that_ask_for_it(said):
    lines = [("always", said["options"]["install_requires"]), *said["options.extras_require"].items()]
    asked: dict[str, dict[str, None]] = {}
    for extra, text in lines:
        for line in filter(None, text.split("\n")):
            asked.setdefault(SCRIPT["plain_name"](line), {})[extra] = None
    rows = _rows("Licences of what tfscale asks for")
    assert {name: extras.split(", ") for name, extras, _ in rows} == {
        name: list(extras) for name, extras in asked.items()
    }
    assert [name for name, _, licence in rows if licence in {"", "says none"}] == []


def test_every_extra_has_its_weight(said):
    assert [row[0] for row in _rows("Weight")] == list(said["options.extras_require"])
    for extra, purpose, packages, megabytes in _rows("Weight"):
        assert purpose
        assert extra in SCRIPT["NOT_WEIGHED"] or (int(packages) > 0 and float(megabytes.replace(",", "")) > 0)


@pytest.mark.parametrize(
    ("requirement", "name"),
    [
        ("keras >=3.12, <4", "keras"),
        ("tensorflow[and-cuda] >=2.20, <3", "tensorflow"),
        ("torch ==2.13.*", "torch"),
        ("absl-py", "absl-py"),
        ("Jinja2_Extra.x; python_version<'3.11'", "jinja2-extra-x"),
    ],
)
def test_names(requirement, name):
    assert SCRIPT["plain_name"](requirement) == name


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ({"license_expression": "MIT", "license": "x", "classifier": []}, "MIT"),
        ({"classifier": ["License :: OSI Approved", "License :: OSI Approved :: BSD License"]}, "BSD License"),
        ({"classifier": ["Topic :: Software"], "license": "Apache 2.0\nA long text"}, "Apache 2.0"),
        ({}, "says none"),
    ],
)
def test_licence_is_what_the_metadata_say_first(metadata, licence):
    assert SCRIPT["licence_of"](metadata) == licence
