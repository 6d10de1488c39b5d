import numpy as np
import pytest

from tests.processes import run_case, run_workers
from tests.training.together import Failure, run_together

CASES = "tests.exact.cases_randomness"
LAYERS = ("Dropout", "GaussianNoise", "RandomFlip")
NUM_REPLICAS, NUM_CALLS = 3, 3

every_layer = pytest.mark.parametrize("name", LAYERS)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("randomness"))


@pytest.fixture(scope="module")
def replicated(directory):
    """Two processes that do the same: their results by function and first argument."""
    calls = [(f"{CASES}:draws", (name, NUM_REPLICAS, NUM_CALLS)) for name in LAYERS]
    calls.append((f"{CASES}:fit_twice", (NUM_REPLICAS,)))
    calls.append((f"{CASES}:draws_after_load", (directory, NUM_REPLICAS)))
    return [_by_name(run_together(calls)) for _ in range(2)]


@pytest.fixture(scope="module")
def plain():
    calls = [(f"{CASES}:plain_draws", (name, NUM_CALLS)) for name in LAYERS]
    return _by_name(run_together(calls))


def _by_name(results):
    failures = [result for result in results.values() if isinstance(result, Failure)]
    assert not failures, failures[0]
    return {
        args[0] if "draws" in target and args[0] in LAYERS else target.partition(":")[2]: result
        for (target, args), result in results.items()
    }


@every_layer
def test_replica_0_draws_what_one_replica_draws(replicated, plain, name):
    np.testing.assert_array_equal(replicated[0][name][:, 0], plain[name])


@every_layer
def test_replicas_and_calls_draw_different_numbers(replicated, name):
    draws = replicated[0][name]
    streams = draws.reshape(NUM_REPLICAS * NUM_CALLS, -1)
    if name == "RandomFlip":
        # One coin per row: what is compared are all calls of a replica together.
        streams = draws.transpose(1, 0, 2, 3).reshape(NUM_REPLICAS, -1)
    assert len(np.unique(streams, axis=0)) == len(streams)


@pytest.mark.parametrize("name", ["Dropout", "GaussianNoise"])
def test_streams_look_independent(replicated, name):
    streams = replicated[0][name].reshape(NUM_REPLICAS * NUM_CALLS, -1)
    correlations = np.corrcoef(streams) - np.eye(len(streams))
    # The deviation of the correlation of n independent pairs is 1 / sqrt(n).
    assert np.max(np.abs(correlations)) < 5 / np.sqrt(streams.shape[1])
    assert np.mean(streams) == pytest.approx(1.0, abs=0.05)


@every_layer
def test_streams_are_reproducible_in_another_process(replicated, name):
    first, second = replicated
    np.testing.assert_array_equal(first[name], second[name])


def test_training_with_dropout_is_reproducible_from_the_seed(replicated):
    first, again = replicated[0]["fit_twice"]
    elsewhere, _ = replicated[1]["fit_twice"]
    for one, other, third in zip(first, again, elsewhere, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)


def test_streams_survive_save_and_load(replicated):
    found = replicated[0]["draws_after_load"]
    # Keras writes no seed states into its files: there the streams start again, still one each.
    np.testing.assert_array_equal(found["from file"], found["first"])
    # The state is one value for all replicas; who saves it goes on where the streams stood.
    assert len(np.unique(found["copies"], axis=0)) == 1
    np.testing.assert_array_equal(found["from state"], found["second"])
    for name in ("first", "second"):
        assert len(np.unique(found[name].reshape(NUM_REPLICAS, -1), axis=0)) == NUM_REPLICAS


@pytest.mark.parametrize("seed", [None, 7])
def test_no_number_is_drawn_twice(seed):
    for where, drawn in run_case(f"{CASES}:all_draws", args=(seed,)).items():
        # On 3 replicas; in each of 2 steps of `fit`.
        assert len(drawn) >= (3 if "by hand" in where else 3 * 2), where
        assert len(set(drawn)) == len(drawn), where


def test_workers_draw_different_numbers():
    first, second = run_workers(f"{CASES}:all_draws", num_workers=2, args=(7,))
    assert first.keys() == second.keys()
    for where, drawn in first.items():
        assert len({*drawn, *second[where]}) == len(drawn) + len(second[where]), where
