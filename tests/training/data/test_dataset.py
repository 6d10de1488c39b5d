"""`dp.dataset`: the same examples whatever N, each worker doing only its share."""

import collections
import itertools

import numpy as np
import pytest

from tests.processes import CaseError, run_case, run_workers
from tests.training.together import Failure, run_together

CASES = "tests.training.data.cases_data"
SOURCES = ("arrays", "memmap", "stream", "PyDataset")
NAMES = [f"{source}, {order}" for source in SOURCES for order in ("in order", "shuffled")]
# How a job is made of replicas of one process, or of workers; and with which loads.
JOBS = {
    "2 replicas": (2, 0, None),
    "3 replicas": (3, 0, None),
    "4 replicas": (4, 0, None),
    "2 replicas, loads": (2, 0, [1, 0.25]),
    "2 workers": (0, 2, None),
    "3 workers": (0, 3, None),
    "2 workers, loads": (0, 2, [1, 0.25]),
}
EPOCHS, NUM_EXAMPLES = 2, 33


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return run_case(f"{CASES}:run", args=(1, str(tmp_path_factory.mktemp("one"))))


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What each process of a job found; a job runs once."""
    found = {}

    def run(job):
        if job not in found:
            num_replicas, num_workers, loads = JOBS[job]
            if num_workers:
                found[job] = run_workers(
                    f"{CASES}:run", num_workers, args=(0, str(tmp_path_factory.mktemp("workers")), loads)
                )
            else:
                found[job] = [
                    run_case(f"{CASES}:run", args=(num_replicas, str(tmp_path_factory.mktemp("here")), loads))
                ]
        return found[job]

    return run


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("name", NAMES)
def test_equals_one_replica(ran, reference, job, name):
    for found in ran(job):
        assert found[name]["steps"] == reference[name]["steps"] == 4
        _assert_equal(found[name]["observed"], reference[name]["observed"])
        np.testing.assert_allclose(found[name]["predict"], reference[name]["predict"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[name]["evaluate"], reference[name]["evaluate"], rtol=1e-4)


def _assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for quantity in expected:
        for ours, theirs in zip(found[quantity], expected[quantity], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("job", [job for job, (_, _, loads) in JOBS.items() if not loads or "workers" in job])
@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_mapped_exactly_once_per_epoch(ran, job, name):
    mapped = collections.Counter(example for found in ran(job) for example in found[name]["mapped"])
    # On more workers than the last batch has rows one would borrow one; here nobody has to.
    assert mapped == dict.fromkeys(range(NUM_EXAMPLES), EPOCHS)


@pytest.mark.parametrize("name", NAMES)
def test_work_falls_with_the_number_of_workers(ran, name):
    counts = {job: [len(found[name]["mapped"]) for found in ran(job)] for job in ("2 workers", "3 workers")}
    assert counts["2 workers"] == [32, 34]
    assert counts["3 workers"] == [20, 20, 26]
    loaded = [len(found[name]["mapped"]) for found in ran("2 workers, loads")]
    assert loaded == [52, 14]


def test_all_kinds_of_sources_give_the_same_batches(reference):
    for source in SOURCES[1:]:
        _assert_equal(reference[f"{source}, in order"]["observed"], reference["arrays, in order"]["observed"])
    _assert_equal(reference["memmap, shuffled"]["observed"], reference["arrays, shuffled"]["observed"])


NAMES_OF_SINGLE = ("skipping", "resumed", "looked_at", "longer", "class_weights", "traces", "other_inputs")


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    calls = [
        *((f"{CASES}:orders", (seed,)) for seed in (3, 4)),
        *((f"{CASES}:{name}", ()) for name in NAMES_OF_SINGLE),
        (f"{CASES}:restored", (str(tmp_path_factory.mktemp("restored")),)),
        (f"{CASES}:tfds", (str(tmp_path_factory.mktemp("tfds")),)),
    ]
    results = run_together(calls)

    def result(name, *args):
        [found] = [
            value for (function, given), value in results.items() if (function, given[: len(args)]) == (name, args)
        ]
        assert not isinstance(found, Failure), found
        return found

    return lambda name, *args: result(f"{CASES}:{name}", *args)


@pytest.mark.parametrize("source", ["arrays", "stream"])
def test_orders(single, source):
    found = single("orders", 3)[source]
    epochs = [list(itertools.chain(*epoch)) for epoch in found["epochs"]]
    for epoch in epochs:
        assert sorted(epoch) == list(range(NUM_EXAMPLES))
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert [len(batch) for batch in found["epochs"][0]] == [10, 10, 10, 3]
    assert found["middle"] == found["epochs"][1][2:]
    assert found["following"] == found["epochs"][2]
    assert single("orders", 4)[source]["epochs"] != found["epochs"]


def test_what_is_skipped_is_not_mapped(single):
    assert single("skipping") == [list(range(20, NUM_EXAMPLES))] * 2


def test_resumed_fit_goes_on_with_the_order_of_its_epoch(single):
    found = single("resumed")
    for half, whole in zip(found["half"], found["whole"], strict=True):
        np.testing.assert_array_equal(half, whole)


def test_backup_goes_on_with_the_order_of_its_epoch(single):
    found = single("restored")
    for half, whole in zip(found["half"], found["whole"], strict=True):
        np.testing.assert_allclose(half, whole, rtol=1e-6)


def test_looking_changes_nothing(single):
    first, second = single("looked_at")["histories"]
    assert first == second
    assert "val_loss" in first
    assert single("looked_at")["lists"] == [[None, 5], [None], [None, 1]]


def test_more_examples_than_a_source_says(single):
    assert "expected to contain 15 elements but contained" in single("longer")


def test_class_weights(single):
    weighted, by_hand = single("class_weights")
    assert weighted == pytest.approx(by_hand, rel=1e-5)


def test_nothing_is_traced_again_per_epoch(single):
    assert single("traces") == 0


def test_other_inputs(single):
    found = single("other_inputs")
    # Read once, for three epochs.
    assert found["reads"] == NUM_EXAMPLES
    assert {"loss", "val_loss", "mae", "val_mae"} <= set(found["history"])
    assert np.isfinite(found["weighted"])
    assert found["dropped"] == (3, [10, 10, 10], [10, 5])


def test_tfds(single):
    found = single("tfds")
    num_examples, seen, num_labels = found["train"]
    assert (num_examples, num_labels) == (seen, 10)
    assert found["spec"] == [[100, 8, 8, 1], [100]]
    assert found["test"] + num_examples == 1797


def test_the_chief_s_seed_reaches_all():
    first, second = run_workers(f"{CASES}:agreed_seed", 2, args=("",))
    assert first == second


def test_failure_of_one_worker_reaches_all():
    chief, other = run_workers(f"{CASES}:failing", 2, args=("",))
    assert other["type"] == "InvalidArgumentError"
    assert "example 18 is broken" in other["said"]
    assert chief["type"] == "ClusterError"
    assert "worker 1 failed" in chief["said"]
    assert "example 18 is broken" in chief["said"]
    # Not after the ten seconds that TensorFlow takes to miss a heartbeat.
    assert chief["after_s"] < other["after_s"] + 5


@pytest.mark.parametrize(
    ("fault", "said"),
    [("length", "30 examples on worker 1, 33 on worker 0"), ("content", "other examples on worker 1")],
)
def test_workers_that_read_different_data(fault, said):
    with pytest.raises(CaseError, match=f"DataError(.|\n)*{said}"):
        run_workers(f"{CASES}:differing", 2, args=("", fault))
