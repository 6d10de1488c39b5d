"""What is of float32 in a model in float64 is judged as float32, and the model trains."""

import pytest

from tests.processes import run_case
from tests.training.check.cases_narrow_numbers import WAYS


@pytest.mark.parametrize("way", WAYS)
def test_trains(way):
    first, last = run_case("tests.training.check.cases_narrow_numbers:losses", args=(way,))
    assert last < first
