"""Losses that are not finite: where they arose is named, and nothing is kept of their steps."""

import numpy as np
import pytest

from tests.processes import run_case, run_workers
from tests.training.callbacks.test_non_finite_skip import assert_as_without
from tests.training.together import Failure, run_together
from tfscale import CallbackError
from tfscale.callbacks import NonFiniteWatch
from tfscale.training.step.non_finite_notes import IN_GRADIENTS, IN_LOSS, Note, first_of

MODULE = "tests.training.callbacks.cases_non_finite"
STOPPED = ["several steps per call", "accumulation, several steps", "own step, several steps"]
REPORTED = ["plain", "accumulation, several steps", "two updates"]
# How many collectives skipping adds to ten steps. Nothing else travels in an accumulated one of several per call.
SENT = {"plain": 0, "two updates": 0, "accumulation, several steps": 10}
AT = "in step 3 of epoch 1 the loss is not finite on replica 1 (worker 0) with rows 4 to 7 of the global batch"


@pytest.fixture(scope="module")
def results():
    calls = [
        *(("stopped", (form, 3)) for form in STOPPED),
        *(("reported", (form, 3)) for form in REPORTED),
        *(("sent_by_skipping", (form, 3)) for form in SENT),
        *(("gradients_alone", (action, 3)) for action in ("stop", "skip", "report")),
        *(("too_large_a_scale", (action, 3)) for action in ("stop", "report")),
        *(("in_inputs", (norm, 3)) for norm in ("synchronized", "local")),
        ("checked", ("skip", 3)),
        ("many", (3,)),
    ]
    named = run_together([(f"{MODULE}:{name}", args) for name, args in calls], timeout_s=900)
    return {call: named[f"{MODULE}:{call[0]}", call[1]] for call in calls}


@pytest.fixture(scope="module")
def alone():
    calls = [(f"{MODULE}:{name}", ("plain", 1)) for name in ("skipped", "stopped", "reported")]
    return run_together(calls)


def result_of(results, *call):
    assert not isinstance(results[call], Failure), results[call]
    return results[call]


@pytest.mark.parametrize("form", STOPPED)
def test_a_run_that_is_stopped_has_the_weights_of_before(results, form):
    found = result_of(results, "stopped", (form, 3))
    assert "The loss of every step, and its gradients, must be finite.\nReceived: " + AT in found["error"]
    assert ", where the data of row 5 are not finite" in found["error"]
    [step] = found["where"]
    assert [(each.replica, each.first_row, each.num_rows) for each in step.where] == [(1, 4, 4)]
    for own, expected in zip(found["state"], found["expected"], strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("form", REPORTED)
def test_a_report_says_it_once_and_changes_nothing(results, form):
    found = result_of(results, "reported", (form, 3))
    assert found["clean"] == []
    first, total = found["said"]
    assert first.startswith(AT)
    assert first.endswith("Training goes on.")
    assert total.startswith("Steps of this fit with a loss that is not finite: ")
    assert not all(found["is_finite"])
    without, watched = found["sent"]
    assert without == watched > 0


def test_one_replica(alone):
    skipped, stopped, reported = (
        alone[f"{MODULE}:{name}", ("plain", 1)] for name in ("skipped", "stopped", "reported")
    )
    for found in (skipped, stopped, reported):
        assert not isinstance(found, Failure), found
    assert_as_without(skipped)
    assert "on replica 0 (worker 0) with rows 0 to 11 of the global batch" in stopped["error"]
    for own, expected in zip(stopped["state"], stopped["expected"], strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-7)
    assert len(reported["said"]) == 2


@pytest.mark.parametrize("form", SENT)
def test_nothing_more_is_sent(results, form):
    without, skipping = result_of(results, "sent_by_skipping", (form, 3))
    assert skipping - without == SENT[form]


@pytest.mark.parametrize("action", ["stop", "skip"])
def test_gradients_that_are_not_finite_are_found_where_they_arise(results, action):
    found = result_of(results, "gradients_alone", (action, 3))
    assert found["is_finite"]
    step = found["found"][0]
    assert (step.epoch, step.step, step.kind) == (1, 3, IN_GRADIENTS)
    assert [(each.replica, each.first_row, each.bad_row) for each in step.where] == [(1, 4, None)]
    assert "Look for a square root, a norm or a division at zero" in (found["error"] or found["said"][0])


def test_a_report_finds_them_a_step_later_and_says_that_it_may_be_so(results):
    found = result_of(results, "gradients_alone", ("report", 3))
    assert found["said"][0].startswith("in step 4 of epoch 1 the loss is not finite on replica 0")
    assert "an earlier update may have made weights that are not finite" in found["said"][0]


@pytest.mark.parametrize("action", ["stop", "report"])
def test_what_loss_scaling_skips_is_no_failure_of_the_loss(results, action):
    found = result_of(results, "too_large_a_scale", (action, 3))
    assert found["clean"] == []
    # Halved: there was such a step.
    assert found["scale"] < 2.0**127
    assert AT in (found["error"] or found["said"][0])


@pytest.mark.parametrize("norm", ["synchronized", "local"])
def test_what_batch_normalization_carries_to_all_replicas_is_found_where_it_arose(results, norm):
    step, is_finite = result_of(results, "in_inputs", (norm, 3))
    assert (step.epoch, step.step) == (1, 4)
    assert [(each.replica, each.bad_row) for each in step.where] == [(2, 9)]
    # Moving averages, too.
    assert is_finite


def test_lines_are_few_and_the_strictest_acts_for_one_fit(results):
    found = result_of(results, "many", (3,))
    assert len(found["said"]) == 3
    assert found["said"][1].endswith("Further ones are counted, and not said.")
    assert found["said"][2].startswith("Of this fit 8 steps were left out")
    assert found["left_out"] == 8
    assert found["was_finite"]
    # A `fit` without the callback is as if there had never been one.
    assert not found["is_finite"]
    assert found["kinds"] == ["ScalingReport", "NonFiniteWatch", "DriftWatch"]


def test_beside_the_look_at_the_first_step(results):
    found = result_of(results, "checked", ("skip", 3))
    assert [(each.step, each.kind) for each in found["found"]] == [(1, IN_LOSS)]
    assert np.isfinite(found["history"]["loss"]).all()


def test_two_workers():
    workers = run_workers(f"{MODULE}:of_workers", 2)
    at = "in step 3 of epoch 1 the loss is not finite on replica 1 (worker 1) with rows 6 to 11 of the global batch"
    for rank, found in enumerate(workers):
        assert "NonFiniteWatch" in found["kinds"]
        assert at in found["stop"]["error"]
        assert found["skip"]["is_finite"]
        assert found["stop"]["is_finite"]
        assert not found["report"]["is_finite"]
        # The chief speaks for all.
        assert [len(found[action]["said"]) for action in ("skip", "report")] == ([2, 2] if rank == 0 else [0, 0])
    assert workers[0]["skip"]["said"][0].startswith(at)


def test_model_that_is_not_prepared():
    assert "`NonFiniteWatch` needs a prepared model" in run_case(f"{MODULE}:not_prepared")


def test_first_of_several_calls_and_replicas():
    fine = Note(9, 0, 0, 0, 0, 0, 0)
    # The second replica found it first; the third only has gradients of it.
    notes = [
        Note(9, 2, 8, IN_LOSS, 0, 4, 0),
        Note(9, 3, 7, IN_LOSS, 4, 4, 0),
        Note(9, 3, 7, IN_GRADIENTS, 8, 4, 0),
        fine,
    ]
    step = first_of(notes, epoch=2, replicas_per_worker=2)
    assert str(step) == (
        "in step 7 of epoch 2 the loss is not finite on replica 1 (worker 0) with rows 4 to 7 of the global batch "
        "(rows are counted from 0)"
    )
    many = [Note(9, 1, 1, IN_LOSS, row, int(row > 0), 0) for row in range(5)]
    assert "; and 2 more replicas" in str(first_of(many, epoch=1, replicas_per_worker=5))
    assert "which has no rows of its own" in str(first_of(many, epoch=1, replicas_per_worker=5))


@pytest.mark.parametrize("action", ["halt", "", None, True, 1, ["stop"]])
def test_bad_action(action):
    with pytest.raises(CallbackError, match="`action` must be"):
        NonFiniteWatch(action)


@pytest.mark.parametrize("most_lines", [0, -1, 1.5, True, None])
def test_bad_number_of_lines(most_lines):
    with pytest.raises(CallbackError, match="`most_lines` must be a positive integer"):
        NonFiniteWatch(most_lines=most_lines)
