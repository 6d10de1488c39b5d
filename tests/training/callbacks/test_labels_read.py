"""Workers that read other batches are told, whatever makes them, and those that only augment are not."""

import pytest

from tests.processes import run_workers
from tests.training.callbacks.cases_labels_read import ALL, CALLS

SAID = "All workers must read the same data"


@pytest.fixture(scope="module")
def by_rank():
    return run_workers("tests.training.callbacks.cases_labels_read:fits", 3)


@pytest.mark.parametrize(
    ("name", "state"),
    [("own entropy", "untouched"), ("own entropy, after an epoch", "trained")],
)
def test_other_batches_end_all_workers(by_rank, name, state):
    for found in by_rank:
        assert found[name].startswith(SAID)
        assert found[name].endswith(state)
        assert "on worker 1 than on worker 0" in found[name]


@pytest.mark.parametrize(
    ("name", "calls", "state"),
    [("own entropy", 1, "untouched"), ("own entropy, after an epoch", 8, "trained")],
)
def test_other_batches_of_a_loop_end_all_workers(by_rank, name, calls, state):
    for found in by_rank:
        said = found[f"train_on_batch, {name}"]
        assert said.startswith("All workers must give `train_on_batch` the same batches")
        assert f"other labels on worker 1 than on worker 0 in the first {calls} call(s)" in said
        assert said.endswith(state)


@pytest.mark.parametrize(
    ("name", "state"), [("own entropy", "untouched"), ("own entropy, after two epochs", "trained")]
)
def test_a_data_set_in_another_order_ends_all_workers(by_rank, name, state):
    for found in by_rank:
        said = found[f"PyDataset, {name}"]
        assert said.startswith(SAID)
        assert "on worker 1 than on worker 0" in said
        assert "(Batches)" in said
        assert said.endswith(state)


LOOPED = ["seeded", "seeded by tfscale", "augmented by own entropy", "labels of a prediction"]
LOOPS = [f"train_on_batch, {each}" for each in LOOPED]
SAME = ["seeded", "seeded by tfscale", "augmented by own entropy", "augmented, checked"]


@pytest.mark.parametrize(
    "name",
    [*SAME, *LOOPS, "PyDataset, seeded", "PyDataset, augmented by own entropy"],
)
def test_the_same_batches_train(by_rank, name):
    assert [found[name] for found in by_rank] == ["3 epochs"] * 3


@pytest.fixture(scope="module")
def calls_by_rank():
    return run_workers("tests.training.callbacks.cases_labels_read:data_of_calls", 3)


LABELS = "other labels on worker 1 than on worker 0 in the first"
OTHER = dict.fromkeys(["arrays", "slices", "shard", "sample_from_datasets", "from_generator", "distributed"], LABELS)
OTHER["more rows on one"] = "18 example(s) on worker 1, 12 example(s) on worker 0,"
OTHER_CALLS = [(name, call) for name in OTHER for call in CALLS.get(name, ["fit"])]


@pytest.mark.parametrize(("name", "call"), OTHER_CALLS)
def test_other_data_are_refused_before_anything_is_updated(calls_by_rank, name, call):
    for found in calls_by_rank:
        said = found[f"{name}, {call}"]
        if call == "predict" and OTHER[name] == LABELS:
            assert said == "done, 1 warning(s)"
        else:
            assert said.startswith(SAID)
            assert f"Received: {OTHER[name]} " in said
            assert f"of what `{call}` reads" in said
            assert said.endswith("untouched")


def test_nothing_is_said_of_the_same_data(calls_by_rank):
    for found in calls_by_rank:
        for each in ("all the data, fit", *(f"from_generator, seeded, {call}" for call in ALL)):
            assert found[each] == "done, 0 warning(s)"


@pytest.mark.parametrize(("name", "warnings"), [("triplets", 1), ("triplets, seeded", 0), ("triplets, augmented", 0)])
def test_other_inputs_are_warned_of_where_labels_tell_nothing(calls_by_rank, name, warnings):
    assert {found[f"{name}, fit"] for found in calls_by_rank} == {f"done, {warnings} warning(s)"}


def test_labels_that_are_drawn_are_warned_of(calls_by_rank):
    assert {found["noisy labels, fit"] for found in calls_by_rank} == {"done, 1 warning(s)"}


def test_other_data_of_validation_end_all_workers(calls_by_rank):
    for found in calls_by_rank:
        assert found["validation"].startswith(SAID)
        assert found["validation"].endswith("trained")


def test_a_generator_that_is_read_on_is_named(calls_by_rank):
    for found in calls_by_rank:
        assert "A Python generator as `validation_data` is read on from where" in found["a generator"]
        assert "A Python generator" not in found["validation"]
