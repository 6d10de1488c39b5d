import numpy as np
import pytest

from tfscale.doctor import all_reduce_check
from tfscale.doctor.all_reduce_check import SIZES, Timing, check_all_reduce, sum_of, value_of

RIGHT = {"num_bytes": 4, "seconds": 0.001, "is_right": True}
REPORT = {"import_s": 1.0, "meet_s": 0.1, "num_replicas": 2, "communication": "ring", "stage": "all-reduce"}


@pytest.mark.parametrize("num_replicas", [1, 2, 3, 100])
def test_sum_is_that_of_the_values_and_exact(num_replicas):
    places = np.arange(600)
    added = np.sum([np.float32(value_of(places, replica)) for replica in range(num_replicas)], axis=0, dtype="float32")
    np.testing.assert_array_equal(added, sum_of(places, num_replicas))


def test_values_differ_between_places_and_replicas():
    # Pieces that arrive in each other's place, or twice, must not give the right sum.
    values = {(place, replica): value_of(place, replica) for place in range(250) for replica in range(3)}
    assert len({tuple(values[place, replica] for replica in range(3)) for place in range(250)}) == 250


def test_sizes():
    assert SIZES[0] == 1
    assert list(SIZES) == sorted(SIZES)


@pytest.mark.parametrize(("num_replicas", "rate"), [(1, 0.0), (2, 1000.0), (4, 1500.0)])
def test_bandwidth(num_replicas, rate):
    assert Timing(1000, 1.0, True).bus_bytes_per_s(num_replicas) == rate
    assert Timing(1000, 0.0, True).bus_bytes_per_s(num_replicas) == 0


@pytest.mark.parametrize(
    ("report", "num_workers", "levels"),
    [
        ({}, 2, []),
        ({"stage": "import", "error": "no module"}, 2, []),
        ({"import_s": 1.0, "stage": "meet"}, 1, []),
        ({"import_s": 1.0, "stage": "meet", "error": "Worker 1 did not answer"}, 2, [("error", "peers")]),
        ({**REPORT, "error": "it did not end"}, 2, [("error", "all-reduce")]),
        ({**REPORT, "timings": [RIGHT]}, 2, [("ok", "peers"), ("ok", "all-reduce")]),
        ({**REPORT, "timings": [RIGHT]}, 1, [("ok", "all-reduce")]),
        ({**REPORT, "timings": [RIGHT, {**RIGHT, "is_right": False}]}, 1, [("error", "all-reduce")]),
    ],
)
def test_judgement(report, num_workers, levels):
    found = check_all_reduce(report, num_workers)
    assert [(finding.level, finding.check) for finding in found] == levels


def test_table():
    lines = all_reduce_check.table([Timing(4, 0.0011, True), Timing(1048576, 0.01, True)], 2)
    assert [len(line) for line in lines] == [len(lines[0])] * 3
    assert lines[2].split() == ["1,048,576", "B", "10.00", "ms", "104.9", "MB/s"]
