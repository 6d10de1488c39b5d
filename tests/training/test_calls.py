"""`fit`, `evaluate` and `predict` in every form in which scripts call them, and what a call leaves behind."""

import numpy as np
import pytest

from tests.training.together import Failure, run_together

CASES = "tests.training.cases_calls"
N = 2
CALLS = [
    # how a class with a `fit` of its own is called, and epochs
    ("arrays", 1),
    ("positional batch size", 2),
    ("own arguments", 1),
    ("own arguments, positional batch size", 1),
    ("by name", 1),
    ("dp.dataset", 1),
    ("own arguments, right batch", 1),
]
DISTRIBUTED = ["experimental_distribute_dataset", "distribute_datasets_from_function"]

SHUFFLED = ["PyDataset", "tf.data"]


@pytest.fixture(scope="module")
def result_of():
    plain = [(f"{CASES}:reference", (epochs,)) for epochs in (1, 2)]
    plain += [(f"{CASES}:distributed_by_the_user", (0, ""))]
    plain += [(f"{CASES}:small_batch_in_any_place", (0, kind)) for kind in SHUFFLED]
    calls = [(f"{CASES}:called", (N, name)) for name, _ in CALLS]
    calls += [(f"{CASES}:distributed_by_the_user", (N, how)) for how in DISTRIBUTED]
    calls += [(f"{CASES}:small_batch_in_any_place", (N, kind)) for kind in SHUFFLED]
    calls += [(f"{CASES}:callback_list", (N, recovery)) for recovery in (True, False)]
    names = ("unseen_data", "recovers", "accumulators_are_settled", "watch_with_validation", "watch_of_a_failed_fit")
    names += ("callback_with_a_close_of_its_own", "error_of_tensorflow", "batch_size_left_out", "generator_again")
    calls += [(f"{CASES}:{name}", (N,)) for name in names]
    results = run_together(plain) | run_together(calls)

    def find(function, *args):
        result = results[(f"{CASES}:{function}", args)]
        assert not isinstance(result, Failure), result
        return result

    return find


def _same(ours, reference):
    for one, other in zip(ours, reference, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "epochs"), CALLS)
def test_class_whose_fit_hands_on_what_it_is_given(result_of, name, epochs):
    found = result_of("called", N, name)
    assert (found["steps"], found["epochs"]) == (11 * epochs, epochs)
    assert found["predict"] == (250, 2)
    assert np.isfinite(found["evaluate"])
    _same(found["weights"], result_of("reference", epochs)["weights"])


def test_fit_that_makes_its_data_itself_is_not_trained_in_batches_of_keras(result_of):
    said = result_of("unseen_data", N)
    assert "global batch, 24 examples; only one may be smaller.\nReceived: a batch of 32." in said
    assert "batch_size=24" in said


def test_recovery_where_fit_hands_on_its_arguments(result_of):
    assert result_of("recovers", N) == (([0, 1], 22), ([0, 1, 2], 33))


def test_accumulators_where_fit_hands_on_its_arguments(result_of):
    gradients = result_of("accumulators_are_settled", N)
    assert gradients
    for copies in gradients:
        assert np.any(copies[0])
        np.testing.assert_array_equal(copies[1], copies[0])


def test_watch_goes_on_after_validation(result_of):
    assert result_of("watch_with_validation", N) == ([True, True, True], 0)


def test_watch_ends_with_a_fit_that_fails(result_of):
    assert result_of("watch_of_a_failed_fit", N) == 0


def test_close_of_somebody_elses_callback_is_theirs(result_of):
    assert not result_of("callback_with_a_close_of_its_own", N)


@pytest.mark.parametrize("recovery", [True, False])
def test_callback_list_does_not_grow(result_of, recovery):
    found = result_of("callback_list", N, recovery)
    assert found == [["TerminateOnNaN", *(["Recovery"] if recovery else []), "History"]] * 4


def test_error_that_is_not_ours_stays_as_it_is(result_of):
    kind, is_its_own_cause, said = result_of("error_of_tensorflow", N)
    assert kind == "InvalidArgumentError"
    assert "on purpose" in said
    assert not is_its_own_cause


@pytest.mark.parametrize("how", DISTRIBUTED)
def test_data_that_the_user_distributed(result_of, how):
    found, expected = result_of("distributed_by_the_user", N, how), result_of("distributed_by_the_user", 0, "")
    assert found["history"].keys() == expected["history"].keys()
    _same(found["weights"], expected["weights"])
    for name, values in expected["history"].items():
        np.testing.assert_allclose(found["history"][name], values, rtol=1e-4)


def test_log_says_that_a_generator_was_read_before(result_of):
    *before, (again,) = result_of("generator_again", N)
    assert before == [[], []]
    assert again.startswith("fit: the generator 'batches' was read by a call before, and read ahead")


def test_log_says_which_batch_is_used(result_of):
    said, batches = result_of("batch_size_left_out", N)
    # 250 rows in batches of 32, as on one device.
    assert batches == 8
    assert said == ["fit without batch_size: the global batch, 24, in the place of Keras's 32"]


@pytest.mark.parametrize("kind", SHUFFLED)
def test_small_batch_in_any_place(result_of, kind):
    """Keras shuffles the batches of a `PyDataset`, and a script may shuffle those of a dataset."""
    found, expected = (result_of("small_batch_in_any_place", n, kind) for n in (N, 0))
    assert set(found["first"]) == {5, 24}
    _same(found["weights"], expected["weights"])
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-4)
