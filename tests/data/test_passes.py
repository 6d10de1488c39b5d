"""Passes over `dp.dataset` on one replica: orders, positions, what is kept, and what `fit` makes of them."""

import itertools

import numpy as np
import pytest

from tests.data.example_rows import NUM_EXAMPLES, X
from tests.training.together import Failure, run_together

CASES = "tests.data.cases_passes"
NAMES_OF_SINGLE = (
    "skipping",
    "resumed",
    "looked_at",
    "longer",
    "class_weights",
    "traces",
    "other_inputs",
    "validation",
    "kept",
    "lengths_that_differ",
)


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


def test_validation_data_go_on_too(single):
    whole, resumed = single("validation")
    assert whole == resumed
    assert whole[0] != whole[1]


@pytest.mark.parametrize("source", ["arrays", "stream"])
def test_mapped_examples_are_kept(single, source):
    found = single("kept")[source]
    # Once each, though there are three epochs, each in an order of its own.
    assert sorted(found["seen"]) == list(range(NUM_EXAMPLES))
    ids = [list(itertools.chain(*epoch)) for epoch in found["ids"]]
    assert len({tuple(each) for each in ids}) == 3
    for epoch, x, ragged in zip(ids, found["x"], found["ragged"], strict=True):
        expected = X[epoch] * np.where(np.array(epoch) % 2 == 0, -1, 1)[:, np.newaxis]
        np.testing.assert_array_equal(x, expected)
        np.testing.assert_array_equal(ragged, expected.reshape(-1))
    assert found["spec"] == ([None, 5], [None, 2, None])


def test_examples_of_several_lengths(single):
    found = single("lengths_that_differ")
    assert "same shapes" in found
    assert "[5,1]" in found
    assert "tf.pad" in found
