"""The code behind the unpromised names, compared with that of the releases that were tried."""

import logging
from importlib.metadata import version

import pytest

from tfscale import VersionError
from tfscale.framework import canary

PACKAGES = pytest.mark.parametrize("package", ["keras", "tensorflow"])
KNOWN = {"1.0.0": {"f": "1", "g": "1"}, "1.1.0": {"f": "2", "g": "1"}}


@PACKAGES
def test_installed_release_says_what_it_said_when_it_was_tried(package):
    judged = canary.judge_installed(package, version(package))
    assert judged.changed == ()
    assert judged.like


@PACKAGES
def test_everything_that_is_compared_is_there(package):
    assert [name for name, found in canary.contents(package).items() if found is None] == []


@PACKAGES
def test_known_releases_were_compared_in_the_same_places(package):
    assert {tuple(each) for each in canary.releases()[package].values()} == {tuple(canary.names(package))}


@pytest.mark.parametrize(
    ("release", "found", "like", "changed", "said"),
    [
        ("1.0.0", {"f": "1", "g": "1"}, "1.0.0", (), ""),
        ("1.2.0", {"f": "2", "g": "1"}, "1.1.0", (), "not tried on; nothing that tfscale stands on differs from 1.1.0"),
        ("0.9.0", {"f": "1", "g": "1"}, "1.0.0", (), "nothing that tfscale stands on differs from 1.0.0"),
        ("1.2.0", {"f": "2", "g": None}, "", ("g",), "tfscale verify train.py:build"),
        # Each of the two was known, and not together.
        ("1.2.0", {"f": "3", "g": "2"}, "", ("f", "g"), "other code"),
        # A release that was tried, and is another one here.
        ("1.1.0", {"f": "1", "g": "1"}, "", ("f",), "other code"),
    ],
)
def test_judgement(release, found, like, changed, said):
    judged = canary.judge("keras", release, found, KNOWN)
    assert (judged.like, judged.changed) == (like, changed)
    assert said in judged.describe()
    assert bool(judged.describe()) == bool(said)


def test_many_changes_are_counted():
    found = {f"keras.src.a:f{number}": "2" for number in range(9)}
    said = canary.judge("keras", "2.0.0", found, {"1.0.0": dict.fromkeys(found, "1")}).describe()
    assert "f0, f1, f2 and 6 more" in said


@pytest.mark.parametrize(
    ("changes", "level"), [({}, logging.INFO), ({"keras.src.losses.loss:Loss.__call__": "0"}, logging.WARNING)]
)
def test_unknown_release_is_told_once(monkeypatch, caplog, changes, level):
    own = canary.contents("keras")
    monkeypatch.setattr(canary, "contents", lambda package: {**own, **changes})
    canary._tell.cache_clear()
    with caplog.at_level(logging.INFO, logger="tfscale"):
        for _ in range(2):
            canary.check_releases("3.98.0", version("tensorflow"), "tensorflow")
    assert [record.levelno for record in caplog.records] == [level]
    assert "Keras 3.98.0" in caplog.text


def test_known_release_is_silent_and_not_read(monkeypatch, caplog):
    monkeypatch.setattr(canary, "contents", None)
    with caplog.at_level(logging.INFO, logger="tfscale"):
        canary.check_releases(version("keras"), version("tensorflow"), "tensorflow")
    assert caplog.text == ""


def test_release_is_known_as_its_metadata_and_as_it_itself_write_it(monkeypatch, caplog):
    canary._tell.cache_clear()
    monkeypatch.setattr(canary, "releases", lambda: {"keras": {"3.16.0rc1": {}}, "tensorflow": {"2.22.0rc0": {}}})
    monkeypatch.setattr(canary, "contents", lambda package, root=None: {})
    canary.check_releases("3.16.0rc1", "2.22.0-rc0", "tensorflow")
    assert caplog.records == []
    assert canary.judge_installed("tensorflow", "2.22.0-rc0").is_known
    canary._tell.cache_clear()


def test_refused_release():
    with pytest.raises(VersionError):
        canary.check_releases("3.2.0", "2.21.0", "tensorflow")
