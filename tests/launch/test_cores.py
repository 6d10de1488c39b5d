import pytest

from tfscale import LaunchError
from tfscale.launch.cores import count_threads, divide_cores


@pytest.mark.parametrize(
    ("num_cores", "num_workers", "per_worker", "shares"),
    [
        (1, 1, None, [(0,)]),
        (4, 2, None, [(0, 1), (2, 3)]),
        (5, 2, None, [(0, 1), (2, 3, 4)]),
        (3, 3, None, [(0,), (1,), (2,)]),
        # Too few to divide: all share them.
        (2, 3, None, [(0, 1)] * 3),
        (4, 2, 1, [(0,), (1,)]),
        (4, 2, 2, [(0, 1), (2, 3)]),
    ],
)
def test_divide(num_cores, num_workers, per_worker, shares):
    assert divide_cores(range(num_cores), num_workers, per_worker) == shares


def test_too_many_asked_for():
    with pytest.raises(LaunchError, match=r"2 core\(s\)\.\nReceived: 2 workers with 2 core\(s\) each"):
        divide_cores([0, 1], 2, 2)


@pytest.mark.parametrize(
    ("environ", "num_cores", "threads"),
    [
        ({}, 4, {"OMP_NUM_THREADS": "4", "TF_NUM_INTRAOP_THREADS": "4", "TF_NUM_INTEROP_THREADS": "4"}),
        ({}, 1, {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2"}),
        ({"OMP_NUM_THREADS": "8", "TF_NUM_INTEROP_THREADS": ""}, 2, {"TF_NUM_INTRAOP_THREADS": "2"}),
    ],
)
def test_threads(environ, num_cores, threads):
    assert count_threads(environ, num_cores) == threads
