"""When a save is due."""

import pytest

from tfscale.errors import RecoveryError
from tfscale.recovery.interval import SaveClock, check_interval, next_agreement, young_daly_s


@pytest.mark.parametrize(
    ("save_s", "mtbf_s", "expected"),
    [(0.5, 86_400, 293.9388), (2, 3_600, 120), (0, 3_600, 0), (100, 10, 100)],
)
def test_young_and_daly(save_s, mtbf_s, expected):
    assert young_daly_s(save_s, mtbf_s) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("mtbf_s", [3_600, 86_400])
@pytest.mark.parametrize("save_s", [0.1, 1.0, 20.0])
def test_young_and_daly_lose_the_least(save_s, mtbf_s):
    def lost(every_s):
        # Of each interval the save; and of each failure half an interval.
        return save_s / every_s + every_s / 2 / mtbf_s

    best = young_daly_s(save_s, mtbf_s)
    assert lost(best) < min(lost(0.9 * best), lost(1.1 * best))


def test_clock():
    clock = SaveClock(60, 86_400, now_s=100)
    assert not clock.is_due(159, None)
    assert clock.is_due(160, None)
    clock.saved(170)
    assert not clock.is_due(229, 5.0)
    assert clock.is_due(230, 5.0)


def test_clock_of_young_and_daly_saves_at_once_to_find_out():
    clock = SaveClock(None, 3_600, now_s=0)
    assert clock.is_due(0, None)
    clock.saved(1)
    assert not clock.is_due(120, 2.0)
    assert clock.is_due(121, 2.0)


@pytest.mark.parametrize(
    ("calls", "elapsed_s", "expected"),
    [(1, 3.0, 1), (1, 0.3, 2), (4, 0.4, 8), (100, 1.0, 100), (100, 2.0, 50), (8, 0.0, 16)],
)
def test_next_agreement(calls, elapsed_s, expected):
    assert next_agreement(calls, elapsed_s) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every_steps": 3, "every_s": 3}, "At most one"),
        ({"every_steps": 0}, "every_steps=0"),
        ({"every_steps": 1.5}, "every_steps=1.5"),
        ({"every_s": -1}, "every_s=-1"),
        ({"every_s": float("nan")}, "every_s=nan"),
        ({"keep": 0}, "keep=0"),
        ({"keep": None}, "keep=None"),
        ({"keep": True}, "keep=True"),
        ({"mtbf_s": 0}, "mtbf_s=0"),
    ],
)
def test_refusals(arguments, message):
    given = {"every_steps": None, "every_s": None, "keep": 3, "mtbf_s": 1.0, **arguments}
    with pytest.raises(RecoveryError, match=message):
        check_interval(**given)
