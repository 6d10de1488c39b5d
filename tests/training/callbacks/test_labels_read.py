"""Workers that read other batches from Python are told, and those that only augment are not."""

import pytest

from tests.processes import run_workers

SAID = "All workers must read the same batches from a generator"


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


def test_a_data_set_in_another_order_ends_all_workers(by_rank):
    for found in by_rank:
        said = found["PyDataset, own entropy"]
        assert "Received: other labels in the first batch of a _Batches on worker 1 than on worker 0" in said
        assert said.endswith("untouched")


def test_a_data_set_that_takes_another_order_ends_all_workers(by_rank):
    for found in by_rank:
        said = found["PyDataset, own entropy, after two epochs"]
        # Keras says that an epoch has ended once more, before the first.
        assert "other labels in the first batch of epoch 2 of a _Batches on worker 1 than on worker 0" in said
        assert said.endswith("trained")


LOOPED = ["seeded", "seeded by tfscale", "augmented by own entropy", "labels of a prediction"]
LOOPS = [f"train_on_batch, {each}" for each in LOOPED]
SAME = ["seeded", "seeded by tfscale", "augmented by own entropy", "augmented, checked"]


@pytest.mark.parametrize(
    "name",
    [*SAME, *LOOPS, "PyDataset, seeded", "PyDataset, augmented by own entropy"],
)
def test_the_same_batches_train(by_rank, name):
    assert [found[name] for found in by_rank] == ["3 epochs"] * 3
