"""The rows of each replica: every row once, nobody more than of a full batch."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfscale import DataError
from tfscale.data.rows import EpochRows, divide_rows, replica_loads
from tfscale.replicas.replica_batch import with_stand_in

loads = st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any).map(lambda each: tuple(map(Fraction, each)))


@given(st.integers(0, 200), loads)
def test_division(rows, loads):
    bounds = divide_rows(rows, loads)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, rows, len(loads) + 1)
    # Each share is within a row of what its load says.
    for share, load in zip((b - a for a, b in itertools.pairwise(bounds)), loads, strict=True):
        assert abs(share - rows * load / sum(loads)) < 1


def test_equal_loads_divide_as_the_step_does():
    for rows, replicas in itertools.product(range(20), range(1, 6)):
        expected = tuple(rows * replica // replicas for replica in range(replicas + 1))
        assert divide_rows(rows, (Fraction(1),) * replicas) == expected


@given(st.integers(1, 300), st.integers(1, 40), loads, st.booleans())
def test_steps_of_an_epoch(num_examples, batch, loads, drop_remainder):
    rows = EpochRows(num_examples, batch, loads, drop_remainder)
    if drop_remainder:
        assert rows.num_steps * batch <= num_examples < (rows.num_steps + 1) * batch
    else:
        assert (rows.num_steps - 1) * batch + rows.last_batch == num_examples
    assert 1 <= rows.last_batch <= batch
    full, last = rows.bounds(batch), rows.bounds(rows.last_batch)
    assert (last[0], last[-1]) == (0, rows.last_batch)
    for a, b in zip(itertools.pairwise(full), itertools.pairwise(last), strict=True):
        assert 0 <= b[1] - b[0] <= a[1] - a[0]


def test_last_batch_never_gives_a_replica_more_than_a_full_one():
    # By load alone the third of five replicas would take 2 of 7 rows, and 2 of 8; the second 1 and then 2.
    rows = EpochRows(15, 8, (Fraction(1),) * 5)
    assert (rows.bounds(8), rows.bounds(7)) == ((0, 1, 3, 4, 6, 8), (0, 1, 2, 3, 5, 7))


@pytest.mark.parametrize(("bounds", "expected"), [((0, 2), (0, 2)), ((3, 3), (3, 4)), ((5, 5), (4, 5))])
def test_stand_in(bounds, expected):
    assert with_stand_in(*bounds, 5) == expected


@pytest.mark.parametrize(
    ("worker_load", "expected"),
    [
        (None, [1, 1, 1, 1]),
        ([1, 0.5], [1, 1, 0.5, 0.5]),
        ([1, 2, 3, 4], [1, 2, 3, 4]),
        (np.array([2, 1]), [2, 2, 1, 1]),
    ],
)
def test_loads(worker_load, expected):
    assert replica_loads(worker_load, num_workers=2, num_replicas=4) == tuple(map(Fraction, expected))


@pytest.mark.parametrize(
    "worker_load",
    [[1], [1, 1, 1], [1, -1], [0, 1], [1, float("nan")], [1, float("inf")], ["a", 1], "12", 2, [None, 1]],
)
def test_bad_loads(worker_load):
    with pytest.raises(DataError, match=r"`worker_load` must give(.|\n)*Received: worker_load="):
        replica_loads(worker_load, num_workers=2, num_replicas=4)
