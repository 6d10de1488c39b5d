"""`sharding="files"`: whole files for each worker, full batches, every example once."""

import itertools

import pytest

from tests.training.together import Failure, run_together

CASES = "tests.data.cases_files"
NUM_EXAMPLES, GLOBAL_BATCH = 28, 8
JOBS = [(1, 1, False), (1, 3, False), (2, 1, False), (2, 1, True), (2, 3, False), (3, 1, False), (3, 2, True)]
REFUSED = {
    "no files": "none*', which are none",
    "lengths": "2 lengths, 1 the least, for 6 files",
    "empty": "at least one example",
    "arrays": "Received: ndarray",
    "sharding": "sharding='file'",
    "auto": "their lengths decide",
    "other length": "FailedPreconditionError",
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    def directory():
        return str(tmp_path_factory.mktemp("files"))

    calls = {
        "passes": ("passes", (directory(),)),
        "builder": ("builder", (directory(),)),
        **{job: ("rows", (directory(), *job)) for job in JOBS},
        **{kind: ("refused", (directory(), kind)) for kind in REFUSED},
    }
    results = run_together([(f"{CASES}:{name}", args) for name, args in calls.values()])
    return dict(zip(calls, results.values(), strict=True))


def _passed(found):
    assert not isinstance(found, Failure), found
    return found


@pytest.mark.parametrize("sharding", ["exact", "files"])
@pytest.mark.parametrize("options", [(), ("shuffle",), ("shuffle", "cache"), ("drop_remainder", "cache")], ids=str)
def test_passes(ran, sharding, options):
    found = _passed(ran["passes"])[(sharding, *options)]
    assert ran["passes"]["lengths"] == (7, 3, 0, 11, 5, 2)
    last = [] if "drop_remainder" in options else [4]
    for epoch in found["epochs"]:
        assert [len(batch) for batch in epoch] == [8, 8, 8, *last]
        numbers = list(itertools.chain(*epoch))
        assert sorted(numbers) == list(range(24 if "drop_remainder" in options else 28))
    assert found["steps"] == len(found["epochs"][0])
    assert found["middle"] == found["epochs"][1][2:]
    orders = {tuple(itertools.chain(*epoch)) for epoch in found["epochs"]}
    assert len(orders) == (3 if "shuffle" in options else 1)


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_every_example_is_in_one_row_of_one_replica(ran, job):
    _, _, drop_remainder = job
    found = _passed(ran[job])
    assert {len(steps) for steps in found["workers"]} == {3 if drop_remainder else 4}
    seen, draws = [], {}
    for step, parts in enumerate(zip(*found["workers"], strict=True)):
        numbers, next_row = [], 0
        for rows, count, all_rows, first_row in itertools.chain(*parts):
            # A replica without rows of its own has one that does not count.
            assert len(rows) == max(count, 1)
            assert first_row == next_row
            assert all_rows == (8, 8, 8, 4)[step]
            next_row += count
            numbers += rows[:count]
        assert next_row == all_rows
        assert numbers == found["whole"][step][0]
        seen += numbers
        draws.update(zip(*found["whole"][step], strict=True))
    assert len(set(seen)) == len(seen) == (24 if drop_remainder else 28)
    # What an example draws depends on it alone, whoever maps it.
    alone = dict(itertools.chain(*(zip(*batch, strict=True) for batch in _passed(ran[1, 1, False])["whole"])))
    assert draws.items() <= alone.items()


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_workers_keep_to_their_files(ran, num_workers):
    files = [range(7), range(7, 10), range(10, 21), range(21, 26), range(26, 28)]
    # The longest file first, each to whoever has least; 28 examples.
    expected = {1: [(0, 1, 2, 3, 4)], 2: [(2, 1), (0, 3, 4)], 3: [(2,), (0, 4), (3, 1)]}[num_workers]
    for steps, owned in zip(_passed(ran[num_workers, 1, False])["workers"], expected, strict=True):
        numbers = {number for [(rows, count, _, _)] in steps for number in rows[:count]}
        assert numbers == {number for file in owned for number in files[file]}


def test_builder(ran):
    found = _passed(ran["builder"])
    assert len(found["lengths"]) == 5
    assert found["files"] == found["exact"]
    assert found["files"]["spec"] == [("uint8", [8, 8, 1]), ("int64", [])]
    assert sum(found["files"]["labels"]) == 1500


@pytest.mark.parametrize("kind", REFUSED)
def test_refused(ran, kind):
    assert isinstance(ran[kind], Failure)
    assert REFUSED[kind] in ran[kind]
