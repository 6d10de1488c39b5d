"""`dp.dataset`: the same examples whatever N, each worker doing only its share."""

import collections

import numpy as np
import pytest

from tests.data.example_rows import EPOCHS, NUM_EXAMPLES
from tests.processes import run_case, run_workers

CASES = "tests.data.cases_equality"
SOURCES = ("arrays", "memmap", "stream", "PyDataset")
NAMES = [f"{source}, {order}" for source in SOURCES for order in ("in order", "shuffled")]
EQUAL, UNEQUAL, ON_GPUS = {"equal": None}, {"loads": [1, 0.25]}, {"as on GPUs": "as on GPUs"}
# How a job is made of replicas of one process, or of workers; and with which loads.
JOBS = {
    "2 replicas": (2, 0, {**EQUAL, **UNEQUAL, **ON_GPUS}),
    "3 replicas": (3, 0, EQUAL),
    "4 replicas": (4, 0, EQUAL),
    "2 workers": (0, 2, {**EQUAL, **UNEQUAL}),
    "3 workers": (0, 3, EQUAL),
}
# The code of all sources meets in these two; each costs seconds per process.
DIFFERENT = [name for name in NAMES if name.startswith(("arrays", "stream"))]


def names_of(job, variant):
    if variant in ON_GPUS:
        return [name for name in DIFFERENT if name.endswith("shuffled")]
    return NAMES if variant in EQUAL and job.startswith("2") else DIFFERENT


WAYS = [
    (job, variant, name)
    for job, (*_, variants) in JOBS.items()
    for variant in variants
    for name in names_of(job, variant)
]
SHARES = {
    ("2 workers", "equal"): [32, 34],
    ("3 workers", "equal"): [20, 20, 26],
    ("2 workers", "loads"): [52, 14],
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    found = run_case(f"{CASES}:run", args=(1, str(tmp_path_factory.mktemp("one")), EQUAL, {"equal": NAMES}))
    return {name.removeprefix("equal: "): result for name, result in found.items()}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What each process of a job found; a job runs once."""
    found = {}

    def run(job):
        if job not in found:
            num_replicas, num_workers, variants = JOBS[job]
            ways = {variant: names_of(job, variant) for variant in variants}
            args = (num_replicas, str(tmp_path_factory.mktemp("job")), variants, ways)
            if num_workers:
                found[job] = run_workers(f"{CASES}:run", num_workers, args=args, timeout_s=300.0)
            else:
                found[job] = [run_case(f"{CASES}:run", args=args, timeout_s=300.0)]
        return found[job]

    return run


@pytest.mark.parametrize(("job", "variant", "name"), WAYS)
def test_equals_one_replica(ran, reference, job, variant, name):
    for result in ran(job):
        found = result[f"{variant}: {name}"]
        assert found["steps"] == reference[name]["steps"] == 4
        _assert_equal(found["observed"], reference[name]["observed"])
        np.testing.assert_allclose(found["predict"], reference[name]["predict"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["evaluate"], reference[name]["evaluate"], rtol=1e-4)


def _assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for quantity in expected:
        for ours, theirs in zip(found[quantity], expected[quantity], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("job", "variant", "name"), WAYS)
def test_every_example_is_mapped_exactly_once_per_epoch(ran, job, variant, name):
    mapped = collections.Counter(example for found in ran(job) for example in found[f"{variant}: {name}"]["mapped"])
    # On more workers than the last batch has rows one would borrow one; here nobody has to.
    assert mapped == dict.fromkeys(range(NUM_EXAMPLES), EPOCHS)


@pytest.mark.parametrize(("job", "variant", "name"), [way for way in WAYS if way[:2] in SHARES])
def test_work_falls_with_the_number_of_workers(ran, job, variant, name):
    assert [len(found[f"{variant}: {name}"]["mapped"]) for found in ran(job)] == SHARES[job, variant]


def test_all_kinds_of_sources_give_the_same_batches(reference):
    for source in SOURCES[1:]:
        _assert_equal(reference[f"{source}, in order"]["observed"], reference["arrays, in order"]["observed"])
    _assert_equal(reference["memmap, shuffled"]["observed"], reference["arrays, shuffled"]["observed"])
