"""Where a run stands in its data: tables with the boundaries, by hand."""

import pytest

from tfscale.recovery.position import (
    DataStart,
    Position,
    convert_iterations,
    convert_step,
    count_calls_to_skip,
    find_data_start,
)


@pytest.mark.parametrize(
    ("position", "steps_per_epoch", "batches", "expected"),
    [
        ((0, 0), None, 6, (0, 0)),
        ((2, 5), None, 6, (2, 5)),
        # Behind the last step, before the end of the epoch.
        ((2, 6), None, 6, (3, 0)),
        ((2, 5), None, None, (2, 5)),
        ((0, 1), 3, 6, (0, 1)),
        ((1, 1), 3, 6, (0, 4)),
        ((1, 3), 3, 6, (1, 0)),
        ((2, 0), 3, 6, (1, 0)),
        # Keras ends an epoch with its data, and begins the next one with another pass.
        ((1, 1), 4, 6, (0, 5)),
        ((2, 1), 4, 6, (1, 1)),
        ((3, 2), 9, 6, (3, 2)),
        # Data that never end.
        ((3, 2), 9, None, (0, 29)),
    ],
)
def test_data_start(position, steps_per_epoch, batches, expected):
    assert find_data_start(Position(*position), steps_per_epoch, batches) == DataStart(*expected)


@pytest.mark.parametrize(
    ("step", "old", "new", "expected"),
    [(0, 4, 8, 0), (4, 4, 8, 2), (3, 4, 8, 1), (3, 8, 4, 6), (5, 130, 65, 10), (5, 130, 195, 3)],
)
def test_step_of_another_batch(step, old, new, expected):
    assert convert_step(step, old, new) == expected


@pytest.mark.parametrize(
    ("iterations", "examples", "batch", "accumulation", "expected"),
    [
        (14, 56, 8, 1, 7),
        (7, 56, 4, 1, 14),
        (0, 0, 8, 1, 0),
        # 59 / 8 = 7.4 and 61 / 8 = 7.6.
        (14, 59, 8, 1, 7),
        (14, 61, 8, 1, 8),
        # 5 micro-steps of 12 are 60 examples; updates of 3 micro-steps of 4 have 12: 5 of them, and 2 stay unfinished.
        (5, 60, 4, 3, 17),
    ],
)
def test_iterations_of_another_batch(iterations, examples, batch, accumulation, expected):
    assert convert_iterations(iterations, examples, batch, accumulation) == expected


@pytest.mark.parametrize(
    ("step", "steps_per_epoch", "per_call", "expected"),
    [
        (0, 6, 1, 0),
        (5, 6, 1, 5),
        (6, 6, 1, 6),
        (4, 6, 4, 1),
        (6, 6, 4, 2),
        # 6 steps in calls of 4 and 2; after 3 steps, as with calls of 3 before, one call does the 3 that are left.
        (3, 6, 4, 1),
        (1, 6, 4, 0),
        (5, None, 1, 5),
        (8, None, 4, 2),
    ],
)
def test_calls_to_skip(step, steps_per_epoch, per_call, expected):
    assert count_calls_to_skip(step, steps_per_epoch, per_call) == expected
