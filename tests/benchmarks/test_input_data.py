"""The arithmetic behind `make bench-data`, by hand."""

from benchmarks.input_data.__main__ import _cpu_share


def test_share_of_the_least_times_beside_that_of_each_pair():
    share, ratios, own_s = _cpu_share({"own": [3.0, 2.0], "whole": [4.0, 8.0]})
    assert (share, ratios, own_s) == (0.5, [0.75, 0.25], 2.0)
