"""Double buffering in `fit`: every update with the gradients of the step before, whatever the number of replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.gradients.cases_double_buffer import STOP_AFTER, expected
from tests.processes import run_workers
from tests.training.linear_regression import EPOCHS, FEATURES, GLOBAL_BATCH, OUTPUTS, ROWS
from tests.training.together import Failure, run_together
from tfscale import CommunicationError, DataParallel, Network, PowerSGD

CASES = "tests.gradients.cases_double_buffer"
# All of which lead to the very same weights.
KINDS = ("plain", "own step", "several steps", "steps chosen", "micro-steps", "XLA", "eager")
# Largest difference of any weight, whose values are near 1.
ROUNDED = {"bf16": 5e-3, "mixed_float16": 2e-3}
ON_WORKERS = ("plain", "own step", "several steps", "steps chosen", "bf16")
STEPS = -(-len(ROWS) // GLOBAL_BATCH)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("double_buffer"))
    stopped = f"{directory}/stopped"
    calls = {
        2: [
            ("recovered", 2, stopped, STOP_AFTER),
            *(("train", 2, kind) for kind in (*KINDS, *ROUNDED, "sparse", "overflow", "everything", "PowerSGD")),
            ("train", 2, "batch norm"),
            ("train", 2, "PowerSGD, loss scale"),
            ("interrupted", 2),
            ("on_batches", 2),
            ("without_gradient", 2),
            ("refusals", 2),
        ],
        3: [
            *(("train", 3, kind) for kind in ("plain", "several steps", "PowerSGD", "batch norm")),
            ("recovered", 3, stopped),
            ("recovered", 3, stopped, None, GLOBAL_BATCH // 2),
        ],
        1: [("train", 1, "plain"), ("recovered", 1, stopped), ("refusals", 1)],
    }
    found = {"directory": directory}
    for each in calls.values():
        named = [
            (f"{CASES}:{name}", (*args, directory) if args[1:] == ["plain"] else tuple(args)) for name, *args in each
        ]
        for call, result in zip(each, run_together(named).values(), strict=True):
            found[call[:3] if call[0] == "recovered" and len(call) == 4 else call] = result
    return found


def result_of(results, *call):
    assert not isinstance(results[call], Failure), results[call]
    return results[call]


@pytest.fixture(scope="module")
def on_workers():
    return run_workers(f"{CASES}:train_all", 2, args=(ON_WORKERS,))


def assert_equal(kernel, wanted, atol=1e-5):
    np.testing.assert_allclose(kernel, wanted, atol=atol, rtol=0)


def test_the_reference_tells_old_gradients_from_new_ones():
    # Without the last update of an epoch, or with it made twice, it would be another kernel too.
    assert np.abs(expected()["kernel"] - expected(delayed=False)["kernel"]).max() > 0.01
    assert np.abs(expected()["kernel"] - expected(epochs=1)["kernel"]).max() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_equals_delayed_descent(results, kind):
    found = result_of(results, "train", 2, kind)
    assert_equal(found["kernel"], expected()["kernel"])
    # As many updates as steps, when an epoch ends; and all of them before it is validated.
    assert found["updates"] == [STEPS, EPOCHS * STEPS]
    assert found["validated"] == pytest.approx(expected()["validated"], rel=1e-5)


@pytest.mark.parametrize("kind", ["plain", "several steps"])
def test_does_not_depend_on_the_number_of_replicas(results, kind):
    assert_equal(result_of(results, "train", 3, kind)["kernel"], expected()["kernel"])


def test_synchronised_statistics_are_not_delayed(results):
    # What they exchange has to wait for the gradients that travel first; it is the same whatever their number.
    two, three = (result_of(results, "train", count, "batch norm") for count in (2, 3))
    for left, right in zip(two["weights"], three["weights"], strict=True):
        assert_equal(left, right)
    assert two["losses"] == pytest.approx(three["losses"], rel=1e-5)


@pytest.mark.parametrize("kind", ON_WORKERS)
def test_workers(on_workers, kind):
    first, second = (each[kind] for each in on_workers)
    assert_equal(first["kernel"], second["kernel"], atol=0)
    assert_equal(first["kernel"], expected()["kernel"], atol=ROUNDED.get(kind, 1e-5))
    assert first["updates"] == second["updates"] == [STEPS, EPOCHS * STEPS]


@pytest.mark.parametrize("kind", sorted(ROUNDED))
def test_rounded(results, kind):
    kernel = result_of(results, "train", 2, kind)["kernel"]
    assert_equal(kernel, expected()["kernel"], atol=ROUNDED[kind])
    assert np.abs(kernel - expected()["kernel"]).max() > 1e-6


@pytest.mark.parametrize("kind", ["sparse", "overflow", "everything"])
def test_what_follows_the_reduction(results, kind):
    # Clipping, decay, a schedule and an average see the old gradients; an overflow skips one update, and no other.
    assert_equal(result_of(results, "train", 2, kind)["kernel"], expected(kind=kind)["kernel"])


def test_an_overflow_skips_one_update_of_each_epoch(results):
    assert result_of(results, "train", 2, "overflow")["updates"] == [STEPS - 1, EPOCHS * (STEPS - 1)]


@pytest.mark.parametrize(("num_replicas", "kind"), [(2, "PowerSGD"), (3, "PowerSGD"), (2, "PowerSGD, loss scale")])
def test_power_sgd_follows_the_paper(results, num_replicas, kind):
    first_q = PowerSGD(1).initial_state(tf.TensorSpec((FEATURES, OUTPUTS)), 0)[1].numpy()
    wanted = expected(kind="PowerSGD", replicas=num_replicas, first_q=first_q)["kernel"]
    assert_equal(result_of(results, "train", num_replicas, kind)["kernel"], wanted)
    assert np.abs(wanted - expected()["kernel"]).max() > 0.01


def test_bytes_are_counted(results):
    assert result_of(results, "train", 2, "plain")["traffic"] is None
    assert result_of(results, "train", 2, "bf16")["traffic"] == (4 * FEATURES * OUTPUTS, 2 * FEATURES * OUTPUTS)
    text = result_of(results, "train", 2, "plain")["text"]
    assert text.endswith("Double buffering: each step applies the gradients of the step before (approximate).")


def test_losses_are_not_delayed(results):
    # Of each batch, at the weights that its forward pass read: Keras logs the mean of the epoch so far.
    losses = expected()["losses"]
    rows = [min(GLOBAL_BATCH, len(ROWS) - GLOBAL_BATCH * step) for step in range(STEPS)]
    wanted = [
        np.average(losses[first : first + step + 1], weights=rows[: step + 1])
        for first in range(0, EPOCHS * STEPS, STEPS)
        for step in range(STEPS)
    ]
    assert result_of(results, "train", 2, "plain")["losses"] == pytest.approx(wanted, rel=1e-5)


def test_the_forward_pass_waits_for_nothing_that_travels(results, on_workers):
    for found in (result_of(results, "train", 2, "own step"), *(each["own step"] for each in on_workers)):
        assert found["waited"]
        assert not any(found["waited"])


def test_one_replica_is_exact(results):
    found = result_of(results, "train", 1, "plain")
    assert_equal(found["kernel"], expected(delayed=False)["kernel"])
    assert found["text"].endswith("1 replica sends nothing; each step applies its own gradients (exact).")


def test_files_hold_nothing_of_it(results):
    found = result_of(results, "train", 2, "plain")
    assert found["variables"] == result_of(results, "train", 1, "plain")["variables"]
    loaded = keras.models.load_model(f"{results['directory']}/2.keras")
    assert_equal(loaded.get_weights()[0], expected()["kernel"])


def test_train_on_batch_is_exact(results):
    assert_equal(result_of(results, "on_batches", 2), expected(delayed=False, epochs=1)["kernel"])


def test_interrupted_fit(results):
    assert_equal(result_of(results, "interrupted", 2), expected(stop_after=2, epochs=1)["kernel"])


def test_no_update_without_a_gradient(results):
    trained, other = result_of(results, "without_gradient", 2)
    assert np.any(trained != 1)
    # Not even the decay.
    np.testing.assert_array_equal(other, np.ones((FEATURES, OUTPUTS)))


def test_recovery_on_another_number_of_replicas(results):
    directory = f"{results['directory']}/stopped"
    assert result_of(results, "recovered", 2, directory) == {"stopped": STOP_AFTER}
    found = result_of(results, "recovered", 3, directory)
    assert_equal(found["kernel"], expected()["kernel"])
    assert found["updates"] == [EPOCHS * STEPS]
    assert len(found["losses"]) == EPOCHS * STEPS - (STOP_AFTER - 1)


def test_recovery_on_one_replica(results):
    # What several have kept is applied at once; from there on each step has its own gradients.
    found = result_of(results, "recovered", 1, f"{results['directory']}/stopped")
    assert_equal(found["kernel"], expected(exact_from=STOP_AFTER - 1)["kernel"])
    assert found["updates"] == [EPOCHS * STEPS]


def test_recovery_with_another_batch(results):
    found = result_of(results, "recovered", 3, f"{results['directory']}/stopped", None, GLOBAL_BATCH // 2)
    # As many updates as steps of the smaller batch would have made.
    assert found["updates"] == [EPOCHS * -(-len(ROWS) // (GLOBAL_BATCH // 2))]


REFUSALS = {
    "accumulation": "a whole update old",
    "AdaScale": "AdaScale measures each step's own gradients",
    "twice": "Received: a second `apply` of 'sgd",
    "sometimes": "Received: a conditional or repeated `apply` of 'sgd",
    "own fit": "no argument `callbacks`",
}


def test_an_optimizer_that_nobody_builds_is_built_before_the_first_step(results):
    assert result_of(results, "refusals", 2)["not built"] == ""


@pytest.mark.parametrize("name", sorted(REFUSALS))
def test_refusals(results, name):
    text = result_of(results, "refusals", 2)[name]
    assert REFUSALS[name] in text
    assert "Received: " in text


def test_refusals_on_one_replica(results):
    on_one = result_of(results, "refusals", 1)
    assert on_one["accumulation"] == result_of(results, "refusals", 2)["accumulation"]
    # Nothing is sent, so it can be sent twice.
    assert on_one["twice"] == ""


@pytest.mark.parametrize("value", [None, 1, 0, "yes", "auto", [True]])
def test_no_bool(value):
    with pytest.raises(CommunicationError, match=r"must be True or False(.|\n)*Received: double_buffering="):
        DataParallel(global_batch=2, devices=1, network=Network(double_buffering=value))
