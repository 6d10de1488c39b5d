"""The first step is compared with that of one replica before anything is updated."""

import numpy as np
import pytest

from tests.processes import run_case, run_workers
from tests.training.contract_cases_anywhere import REFUSED

CASES = "tests.training.check.cases_step_check"


# What may be assigned in another step shows in a graph alone.
@pytest.mark.parametrize("name", [name for name in REFUSED if name != "a number that is clipped"])
def test_a_step_that_cannot_be_divided_is_refused_before_anything_is_updated(name):
    found = run_case(f"{CASES}:refused", args=(name,))
    rule, received, way_out = found["message"].split("\n", 1)[0], "Received:", REFUSED[name][1]
    assert any(each in rule for each in ("is not that of one replica", "not when it is divided", "other values"))
    assert received in found["message"]
    assert (f"tfscale.{way_out}" if way_out else "Let the examples come first") in found["message"]
    assert found["is unchanged"]


def test_data_of_another_kind_are_looked_at_when_they_come():
    found = run_case(f"{CASES}:another_kind")
    assert all(each.startswith("The first step of model") for each in found["looks"])
    assert found["looks"]
    assert found["is unchanged"]


@pytest.mark.parametrize(("mode", "num_warnings"), [("warn", 1), ("off", 0)])
def test_other_modes_train(mode, num_warnings):
    found = run_case(f"{CASES}:modes", args=(mode,))
    assert found["trained"] == 1
    assert len(found["warnings"]) == num_warnings


def test_all_workers_end_with_the_same_error():
    first, second = run_workers(f"{CASES}:on_workers", num_workers=2)
    assert "gather_rows" in first
    assert first == second


def test_the_log_says_that_gradients_are_summed_where_they_are_made():
    found = run_case(f"{CASES}:summed_where_read")
    assert len(found["as it stands"]) == 1
    assert found["with sum_gradients"] == []


def test_layers_are_divided_where_the_step_mixes_rows():
    found = run_case(f"{CASES}:divided_by_calls")
    # The look has seen 23 at once. Each step's 24 are divided.
    assert 24 // 2 in found["rows"]
    assert 24 not in found["rows"]
    assert len(found["said"]) == 1
    assert "gather_rows" in found["said"][0]
    # Other numbers on every replica would be drawn beside what is mixed.
    assert "is not that of one replica" in found["drawing"]


def test_callbacks_that_trace_the_step_anew_leave_the_look_to_it():
    found = run_case(f"{CASES}:watched")
    assert any("mixes the rows" in each for each in found["said"])
    assert 24 not in found["rows"]


def test_what_is_checked_and_how_often():
    found = run_case(f"{CASES}:checked_once")
    assert found["stock, first fit"] == found["stock, second fit"] == 0
    assert found["own, first fit"] > 0
    # Calls 4, 8 and so on of the same function; each look runs the step twice.
    assert 0 < found["own, second fit"] < found["own, first fit"]
    assert found["own, compiled anew"] > 0


def test_no_step_is_lost_where_a_call_takes_several():
    assert np.allclose(run_case(f"{CASES}:steps_per_call"), run_case(f"{CASES}:plain_steps"), rtol=1e-5)


def test_what_a_step_only_assigns_to_is_put_back_as_well():
    counted, steps = run_case(f"{CASES}:assigned_only")
    assert counted == steps == 3


def test_what_a_variable_averages_over_the_replicas_is_the_mean_over_all_rows():
    alone, divided = (run_case(f"{CASES}:averaged", args=(replicas,)) for replicas in (1, 3))
    for expected, copies in zip(alone, divided, strict=True):
        # The last batch leaves two replicas without a row.
        assert all(np.allclose(copy, expected[0], rtol=1e-5, atol=1e-7) for copy in copies)


def test_answers_of_the_strategy():
    found = run_case(f"{CASES}:answers")
    assert found == {
        "outside": 2,
        "strategy": 1,
        "context": 1,
        "seen": [True, True],
        "hooked": True,
        "afterwards": 2,
        "numbers": [pytest.approx(0.1), 3],
    }


def test_what_was_counted_before_does_not_matter():
    found = run_case(f"{CASES}:counted_before")
    assert found == {"trained": 2, "left": 10.0}


@pytest.mark.parametrize(("outlier", "steps_per_execution", "updates"), [(2, 1, 3), (5, 1, 7), (2, 2, 2)])
def test_a_branch_that_is_taken_later_is_found_at_the_next_look(outlier, steps_per_execution, updates):
    message, made = run_case(f"{CASES}:later", args=(outlier, steps_per_execution))
    assert "sum_gradients" in message
    assert message.endswith("is not that of one replica. See docs/errors.md#parityerror.")
    assert made == updates


@pytest.mark.parametrize("build", ["layer", "step"])
def test_predictions_are_looked_at_too(build):
    found = run_case(f"{CASES}:predictions", args=(build,))
    assert found["gap"] < 1e-6
    assert len(found["said"]) == 1
    assert "the first prediction of model" in found["said"][0]


def test_predictions_that_cannot_be_divided_are_refused():
    message = run_case(f"{CASES}:predictions", args=("layer", True))["error"]
    assert message.startswith("The first prediction of model")
    assert "Received:\n  prediction 'outputs': " in message
    assert "gather_rows" in message


@pytest.mark.parametrize(("units", "calls"), [(2, (24, 3, 4, 2, 1, 7)), (2, (1, 3)), (2, (2,)), (1, (24, 3, 2, 28))])
def test_squeezed_predictions_of_single_rows_are_those_of_one_replica(units, calls):
    for one, own, gap in run_case(f"{CASES}:squeezed_predictions", args=(units, calls)):
        assert own == one
        assert gap < 1e-6


def test_predictions_of_keras_own_layers_are_not_looked_at():
    assert run_case(f"{CASES}:predictions", args=("neither",)) == {
        "gap": pytest.approx(0.0, abs=1e-6),
        "looks": 0,
        "said": [],
    }


@pytest.mark.parametrize("how", ["layer", "seeds"])
def test_rows_that_meet_in_an_order_that_is_drawn_are_given_to_all_replicas(how):
    found = run_case(f"{CASES}:mixed_pairs", args=(how,))
    assert len(found["said"]) == 1
    assert found["are equal"]


def test_an_order_that_every_replica_would_draw_for_itself_is_refused():
    message = run_case(f"{CASES}:mixed_pairs", args=("state",))["error"]
    assert "is not that of one replica" in message
    assert "keras.random.SeedGenerator" in message.splitlines()[-1]


def test_numbers_that_are_drawn_for_each_row_are_no_difference():
    drawn, said = run_case(f"{CASES}:drawing_rows")
    assert drawn == ["beta", "binomial", "categorical", "gamma", "poisson"]
    assert said == []


def test_what_is_drawn_eagerly_is_looked_at_in_a_graph_or_said():
    assert run_case(f"{CASES}:drawing_eagerly", args=(False,)) == []
    (said,) = run_case(f"{CASES}:drawing_eagerly", args=(True,))
    assert "it draws random numbers, runs eagerly, and has no graph" in said


def test_a_branch_of_every_third_step_is_found():
    found = run_case(f"{CASES}:every_third_step")
    if isinstance(found["ours"], str):
        assert "not with other values of counters" in found["ours"]
    else:
        for own, one in zip(found["ours"], found["plain"], strict=True):
            np.testing.assert_allclose(own, one, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_meet_are_not_taken_for_rounding(dtype):
    found = run_case(f"{CASES}:far_from_zero", args=(dtype,))
    assert found["gap"] < 1e-3
    assert any("mixes the rows" in each for each in found["said"])


@pytest.mark.parametrize("isa", ["DEFAULT", "AVX2"])
def test_what_rounding_makes_of_noise_that_is_held_still_is_no_difference(isa):
    # What a sum of equal numbers is rounded to depends on how many of them a processor adds up at once.
    found = run_case(f"{CASES}:normalized_noise", env={"ONEDNN_MAX_CPU_ISA": isa}, fresh=True)
    assert found["ended"] is True


def test_another_way_that_fails_is_no_cure():
    found = run_case(f"{CASES}:no_other_way")
    assert "is not that of one replica" in found["message"]
    assert "tfscale.sum_gradients" in found["message"]
    assert found["is unchanged"]
