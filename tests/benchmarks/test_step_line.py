"""What a line foretells of a batch that it was not fitted to, on times that are made up."""

import pytest

from benchmarks.step_line import BATCHES, left_out


def test_a_line_foretells_all_of_its_points():
    times = {batch: 0.002 + 3e-5 * batch for batch in BATCHES}
    assert left_out(times) == pytest.approx(times)


def test_a_batch_off_the_line_is_seen():
    times = {batch: 0.002 + 3e-5 * batch for batch in BATCHES}
    found = left_out(times | {64: 1.5 * times[64]})
    assert found[64] == pytest.approx(times[64])
