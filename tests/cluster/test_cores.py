import os

from tfscale.cluster.cores import find_cores


def test_find():
    assert set(find_cores()) == os.sched_getaffinity(0)
