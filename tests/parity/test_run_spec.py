import pytest

from tfscale import ParityError
from tfscale.parity.run_spec import choose_runs


@pytest.mark.parametrize(
    ("counts", "workers", "against", "expected"),
    [
        ((1,), None, None, ["tfscale, 1 replica"]),
        ([3, 2], None, None, ["tfscale, 3 replicas", "tfscale, 2 replicas"]),
        (2, 2, None, ["tfscale, 2 replicas", "tfscale, 2 workers"]),
        ((), 2, None, ["tfscale, 2 workers"]),
        ((1,), None, "keras", ["tfscale, 1 replica"]),
        (
            (1, 2),
            3,
            "keras",
            [
                "tfscale, 1 replica",
                "tfscale, 2 replicas",
                "tfscale, 3 workers",
                "keras, 2 replicas",
                "keras, 3 workers",
            ],
        ),
    ],
)
def test_runs(counts, workers, against, expected):
    assert list(map(str, choose_runs(counts, workers=workers, against=against))) == expected


@pytest.mark.parametrize("counts", [(), (0,), (-1, 2), (2, 2), (1.0,), (True,), "2", None])
def test_refused_counts(counts):
    with pytest.raises(ParityError, match="`num_replicas` must be positive integers, each once"):
        choose_runs(counts, workers=None, against=None)


@pytest.mark.parametrize("workers", [0, 1, -2, 2.0, True, "2"])
def test_refused_workers(workers):
    with pytest.raises(ParityError, match="`workers` must be an integer of 2 or more"):
        choose_runs((2,), workers=workers, against=None)


def test_refused_against():
    with pytest.raises(ParityError, match="Received: against='torch'"):
        choose_runs((2,), workers=None, against="torch")
