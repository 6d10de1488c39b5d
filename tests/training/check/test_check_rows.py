"""On which rows a step is looked at."""

import pytest

from tests.processes import run_case
from tfscale.training.check.check_rows import uneven_count

CASES = "tests.training.check.cases_step_check"


@pytest.mark.parametrize(
    ("count", "few", "num_replicas", "expected"),
    [(24, 4, 3, 23), (23, 4, 3, 23), (4, 4, 3, 4), (3, 4, 3, 3), (6, 4, 3, 5), (16, 3, 2, 15), (8, 2, 1, 8)],
)
def test_replicas_do_not_all_get_as_many(count, few, num_replicas, expected):
    assert uneven_count(count, few, num_replicas) == expected


def test_a_few_are_looked_at_where_a_device_has_no_room_for_more():
    found = run_case(f"{CASES}:room_for_so_many", args=((24, 12, 2),))
    # Of 24 rows: 23, so that three replicas do not all get as many; then all; then one more than there are replicas.
    assert "It was tried on 23 rows" in found[24]
    assert "It was tried on 4 rows" in found[12]
    # Not even those: it trains, with a warning.
    assert "could not be checked" in found[2]
