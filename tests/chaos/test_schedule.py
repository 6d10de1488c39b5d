"""Schedules: the same for the same seed, bounded, and of every kind."""

import pytest

from tests.chaos.schedule import (
    DAMAGES,
    DATA,
    ENDING,
    FAULTS,
    OF_SEVERAL,
    ONE_WORKER,
    PASSING,
    STEPS,
    Attempt,
    Fault,
    draw,
)

SEEDS = range(2_000)


def test_a_seed_gives_the_same_schedule():
    assert [draw(seed) for seed in SEEDS] == [draw(seed) for seed in SEEDS]


def test_every_fault_meets_every_kind_of_data():
    found = {(fault.kind, schedule.data) for schedule in map(draw, SEEDS) for fault in schedule.faults}
    of_one = {(fault, data) for fault in OF_SEVERAL for data in ONE_WORKER}
    assert found == {(fault, data) for fault in FAULTS for data in DATA} - of_one


@pytest.mark.parametrize("what", [ENDING, PASSING, DAMAGES])
def test_faults_are_of_one_sort(what):
    assert [kind for kind in what if FAULTS.count(kind) != 1] == []


def test_bounds():
    for schedule in map(draw, SEEDS):
        assert 1 <= len(schedule.faults) <= 5
        assert len(schedule.attempts) <= 4
        # Damages come after an end, and the last start has none.
        assert schedule.attempts[0].damages == ()
        assert schedule.attempts[-1].ending is None
        assert all(attempt.ending for attempt in schedule.attempts[:-1])
        for attempt in schedule.attempts:
            assert 1 <= attempt.workers <= (1 if schedule.data in ONE_WORKER else 3)
            assert {fault.kind for fault in attempt.damages} <= set(DAMAGES)
            assert sum(fault.kind in ENDING for fault in attempt.faults) <= 1
            for fault in attempt.faults:
                assert fault.rank < attempt.workers
                assert fault.step is None or 0 <= fault.step < 3 * STEPS
                assert attempt.workers > 1 or fault.kind not in OF_SEVERAL


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (Attempt(2), "2 workers: nothing"),
        (Attempt(1, (Fault("index gone"),)), "1 workers: index gone"),
        (Attempt(3, (), (Fault("paused", 1, 4, 0.5),)), "3 workers: paused (worker 1, step 4 + 0.50 s)"),
        (Attempt(3, (), (Fault("SIGTERM", 2, None, 2),)), "3 workers: SIGTERM (worker 2, start + 2.00 s)"),
    ],
)
def test_in_words(attempt, expected):
    assert str(attempt) == expected
