"""Has each worker the rows of all, of whatever kind they are?"""

import pytest

from tests.processes import run_workers


@pytest.mark.parametrize("workers", [2, 3])
def test_rows_of_all_kinds(workers):
    first, *others = run_workers("tests.replicas.cases_agreement:gathered", workers)
    found, expected = first
    assert found == expected
    assert all(each == first for each in others)
