"""A prepared model is still its own class: its files, its graph, and what goes wrong alike."""

import numpy as np
import pytest

from tests.training.together import Failure, run_together

CASES = "tests.training.cases_prepared"

COLLECTIVES = [
    # replicas, kind of model, collectives per replica in a training step and in an evaluation step
    (1, "plain", 0, 0),
    (1, "batch norm", 0, 0),
    (2, "plain", 1, 1),
    (2, "clipnorm", 1, 1),
    (2, "loss scale", 1, 1),
    (2, "adascale", 1, 1),
    # The checksums of weights travel along.
    (2, "watched", 1, 1),
    # Forward and backward of the one layer.
    (2, "batch norm", 3, 1),
    # Metrics on every step; gradients in the branch of the update alone.
    (2, "accumulation", 2, 1),
]


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    return {n: str(tmp_path_factory.mktemp(f"saved{n}")) for n in (0, 2)}


@pytest.fixture(scope="module")
def results(directories):
    by_replicas = {
        0: [(f"{CASES}:save", (0, directories[0])), (f"{CASES}:trained_on", (0,)), (f"{CASES}:eager_reads", (0,))],
        1: [],
        2: [
            (f"{CASES}:save", (2, directories[2])),
            (f"{CASES}:copies_after_training", (2,)),
            (f"{CASES}:eager_reads", (2,)),
            *((f"{CASES}:not_finite", (2, value, False)) for value in (np.inf, -np.inf)),
            (f"{CASES}:not_finite", (2, np.inf, True)),
        ],
    }
    for num_replicas, kind, _, _ in COLLECTIVES:
        by_replicas[num_replicas].append((f"{CASES}:collectives", (num_replicas, kind)))
    found = {}
    for calls in by_replicas.values():
        found |= run_together(calls)
    found |= run_together([(f"{CASES}:load_without_tfscale", (directories[2],))])
    return found


@pytest.fixture
def result_of(results):
    def find(function, *args):
        result = results[(f"{CASES}:{function}", args)]
        assert not isinstance(result, Failure), result
        return result

    return find


def test_files_are_those_of_the_unprepared_model(result_of, directories):
    prepared = result_of("save", 2, directories[2])
    plain = result_of("save", 0, directories[0])
    assert prepared["config"] == plain["config"]
    assert prepared["summary"] == plain["summary"]
    assert prepared["is instance"]
    assert prepared["class"] == plain["class"]


def test_files_load_where_tfscale_is_not_installed(result_of, directories):
    loaded = result_of("load_without_tfscale", directories[2])
    expected = result_of("save", 2, directories[2])["predict"]
    assert loaded["tfscale"] is None
    for form in ("keras", "weights", "exported"):
        np.testing.assert_allclose(loaded[form], expected, rtol=1e-5, atol=1e-6)


def test_loaded_model_trains_on_as_plain_keras_would(result_of, directories):
    loaded = result_of("load_without_tfscale", directories[2])["trained on"]
    for ours, reference in zip(loaded, result_of("trained_on", 0), strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("num_replicas", "kind", "train", "test"), COLLECTIVES)
def test_number_of_collectives(result_of, num_replicas, kind, train, test):
    found = result_of("collectives", num_replicas, kind)
    assert found == {"train": train * num_replicas, "test": test * num_replicas}


def test_logs_of_an_epoch_are_not_computed_anew(result_of):
    ours, keras = result_of("eager_reads", 2), result_of("eager_reads", 0)
    # Keras: two epochs and an evaluation.
    assert (ours["reads"], keras["reads"]) == (0, 3)
    assert ours["names"] == keras["names"]
    for name in ours["names"]:
        np.testing.assert_allclose(ours["history"][name], keras["history"][name], rtol=1e-5)
    np.testing.assert_allclose(ours["evaluate"], keras["evaluate"], rtol=1e-5)


def test_all_copies_are_the_same_to_the_bit(result_of):
    for copies in result_of("copies_after_training", 2):
        for copy in copies[1:]:
            np.testing.assert_array_equal(copy, copies[0])


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_what_is_not_finite_on_one_replica_reaches_all_alike(result_of, value):
    found = result_of("not_finite", 2, value, False)
    assert any(np.any(~np.isfinite(weights)) for weights in found["after"])
    for copies in found["copies"]:
        for copy in copies[1:]:
            np.testing.assert_array_equal(copy, copies[0])


def test_step_that_one_replica_cannot_take_is_skipped_by_all(result_of):
    found = result_of("not_finite", 2, np.inf, True)
    for before, after in zip(found["before"], found["after"], strict=True):
        np.testing.assert_array_equal(after, before)
    for copies in found["copies"]:
        for copy in copies[1:]:
            np.testing.assert_array_equal(copy, copies[0])
