"""When a save is late, that is said; clocks stand still."""

import logging
import pathlib
import types

import pytest

from tfscale.recovery import decision as decision_module
from tfscale.recovery.decision import Decision, Settings

LATE = "A save takes longer than the interval between two saves"


def decide(every_s, *, is_chief=True, every_steps=None):
    settings = Settings(pathlib.Path("never used"), every_steps, every_s, keep=2, mtbf_s=3600.0)
    workers = types.SimpleNamespace(is_chief=is_chief, are_several=False)
    return Decision(settings, workers, types.SimpleNamespace(requested=False))


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    now = types.SimpleNamespace(s=1000.0)
    monkeypatch.setattr(decision_module, "time", types.SimpleNamespace(monotonic=lambda: now.s))
    return now


@pytest.mark.parametrize(
    ("every_s", "took_s", "said"),
    [
        (10.0, [12.5], "(12.5 s in the place of 10 s): choose a longer one."),
        # Once is enough.
        (10.0, [1.0, 12.5, 300.0], "(12.5 s in the place of 10 s): choose a longer one."),
        (10.0, [10.0, 9.9, None], None),
        # Young's and Daly's interval is never shorter than a save.
        (None, [5000.0], None),
    ],
)
def test_a_save_longer_than_the_interval_is_said_once(caplog, every_s, took_s, said):
    decision = decide(every_s)
    with caplog.at_level(logging.WARNING, "tfscale"):
        for each in took_s:
            decision.saved(each)
    assert [record.getMessage().partition(f"{LATE} ")[2] for record in caplog.records] == ([said] if said else [])


def test_the_chief_alone_says_it(caplog):
    with caplog.at_level(logging.WARNING, "tfscale"):
        decide(10.0, is_chief=False).saved(12.5)
    assert not caplog.records
