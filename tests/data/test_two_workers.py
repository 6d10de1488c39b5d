"""What two workers do together with `dp.dataset`: agree, divide, keep, and fail."""

import collections
import itertools
import re

import numpy as np
import pytest

from tests.data.example_rows import EPOCHS, GLOBAL_BATCH, NUM_EXAMPLES
from tests.processes import run_workers

CASES = "tests.data.cases_workers"


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    return run_workers(f"{CASES}:together", 2, args=(str(tmp_path_factory.mktemp("together")),))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("length", "30 examples on worker 1, 33 on worker 0"),
        ("content", "other examples on worker 1"),
        ("arguments", "others on worker 1 than on worker 0"),
    ],
)
def test_workers_that_read_different_data(together, fault, said):
    for found in together:
        assert said in found["refused"][fault]


def test_the_chief_s_seed_reaches_all(together):
    first, second = together
    assert first["seed"] == second["seed"]


@pytest.mark.parametrize(
    ("seed", "said"),
    [
        (None, "Received: data that are shuffled without a seed"),
        (3, "no error"),
        ("rank", "Received: other seeds of `shuffle` on worker 1 than on worker 0"),
        ("global", "Received: other seeds of `shuffle` on worker 1 than on worker 0"),
    ],
)
@pytest.mark.parametrize("call", ["fit", "validation", "evaluate"])
def test_plain_shuffle(together, seed, said, call):
    """What draws without mixing the examples is taken."""
    for found in together:
        assert said in found["unseeded"][seed][call]
        assert said == "no error" or "`dp.dataset(..., shuffle=True)`" in found["unseeded"][seed][call]


@pytest.fixture(scope="module")
def shuffled_by_keras():
    return run_workers(f"{CASES}:shuffled_by_keras", 2, args=("",))


@pytest.mark.parametrize(
    ("seed", "shuffle"), [(None, True), (None, False), (None, "batch"), (3, True), (3, "batch"), ("rank", True)]
)
def test_arrays_that_keras_shuffles_without_a_seed(shuffled_by_keras, seed, shuffle):
    """All workers read one order, a new one in each epoch; by a seed of all, it is Keras's own."""
    first, second = (found[seed, shuffle] for found in shuffled_by_keras)
    orders = []
    for steps in zip(first["epochs"], second["epochs"], strict=True):
        batches = [own + other for own, other in zip(*steps, strict=True)]
        assert sorted(itertools.chain(*batches)) == list(range(NUM_EXAMPLES))
        orders.append(batches)
        if shuffle == "batch":
            assert [sorted(batch) for batch in batches] == [sorted(b) for b in np.array_split(range(33), [10, 20, 30])]
    assert (orders[0] == orders[1] == orders[2]) == (seed == 3 or shuffle is False)
    assert ([*itertools.chain(*orders[0])] == list(range(NUM_EXAMPLES))) == (shuffle is False)
    for rank, found in enumerate((first, second)):
        assert not found["warnings"]
        assert found["seed"] == {None: 87654321, 3: 3, "rank": rank}[seed]


@pytest.mark.parametrize("seed", [1, "rank"])
def test_batches_that_keras_shuffles_by_python_s_random_numbers(shuffled_by_keras, seed):
    steps = [own + other for own, other in zip(*(found[seed] for found in shuffled_by_keras), strict=True)]
    for epoch in (steps[:3], steps[3:]):
        assert sorted(itertools.chain(*epoch)) == list(range(3 * GLOBAL_BATCH))
    assert steps != sorted(steps)


def test_measured_loads(together):
    first, second = (found["measured"] for found in together)
    assert first["auto"] == second["auto"]
    # Worker 1 takes 20 ms more for each of its examples; worker 0 about 1 ms for all of a step's.
    assert first["auto"][0] > 0.8
    assert sum(first["auto"]) == pytest.approx(1)
    assert first["equal"] == (0.5, 0.5)
    for by_load, equal in zip(*first["weights"], strict=True):
        np.testing.assert_allclose(by_load, equal, rtol=1e-4, atol=1e-6)


def test_what_a_worker_mapped_is_kept_there(together):
    for found in together:
        # In six epochs nearly every example came by once.
        assert len(set(found["kept"])) == len(found["kept"]) > NUM_EXAMPLES // 2
    assert {example for found in together for example in found["kept"]} == set(range(NUM_EXAMPLES))


def test_files_of_one_s_own(together):
    mapped = [found["files"]["mapped"] for found in together]
    counts = collections.Counter(mapped[0] + mapped[1])
    assert counts == dict.fromkeys(range(NUM_EXAMPLES), EPOCHS)
    # Files 2 and 5, and the others.
    assert set(mapped[0]) == {*range(10, 21), *range(28, 33)}
    assert len(mapped[0]) == EPOCHS * 16
    assert not set(mapped[0]) & set(mapped[1])
    for found in together:
        assert found["files"]["steps"] == 4
        assert found["files"]["evaluate"] == pytest.approx(found["files"]["by hand"], rel=1e-5)
        assert "in the order of the examples" in found["files"]["predict"]
    assert together[0]["files"]["loss"] == together[1]["files"]["loss"]


def test_failure_of_one_worker_reaches_all():
    chief, other = run_workers(f"{CASES}:failing", 2, args=("",))
    assert other["type"] == "InvalidArgumentError"
    assert "example 18 is broken" in other["said"]
    assert chief["type"] == "ClusterError"
    assert re.search(r"worker 1 \(127\.0\.0\.1:\d+\) failed with ", chief["said"])
    assert "example 18 is broken" in chief["said"]
    # Not after the ten seconds that TensorFlow takes to miss a heartbeat.
    assert chief["after_s"] < other["after_s"] + 5


def test_refusal_of_one_worker_reaches_all():
    chief, other = run_workers(f"{CASES}:refusing", 2, args=("",))
    assert other["type"] == "DataError"
    assert "batch_size=3" in other["said"]
    assert chief["type"] == "ClusterError"
    assert re.search(r"worker 1 \(127\.0\.0\.1:\d+\) failed with DataError: `batch_size` must be", chief["said"])
    assert chief["after_s"] < other["after_s"] + 5
