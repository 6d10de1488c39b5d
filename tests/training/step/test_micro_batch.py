"""How many rows a micro-step has, what it draws, and what it saves."""

import numpy as np
import pytest

from tests.processes import run_case
from tests.training import contract_run
from tests.training.together import Failure, run_together
from tfscale.errors import BatchError
from tfscale.training.step.micro_batch import check_micro_batch, halve_until_it_fits

CASES = "tests.training.step.cases_micro_batch"
NUM_REPLICAS = 2

# On three replicas every case runs in test_contract.py.
ON_ONE = (
    "micro-steps, last batch smaller than N",
    "micro-steps, masked sequence loss",
    "micro-steps, several inputs and outputs, last batch smaller than N",
    "micro-steps, batch norm local",
)


@pytest.mark.parametrize("name", ON_ONE)
def test_equals_one_pass_on_one_replica(results, name):
    contract_run.check(contract_run.load_cases()[name], results(ON_ONE, 1)[name])


@pytest.mark.parametrize("value", [0, -1, -16, 1.5, 8.0, True, "16", "Auto", "max"])
def test_bad_values_are_refused(value):
    with pytest.raises(BatchError, match=r"(?s)positive integer, \"auto\", or None.*\nReceived: micro_batch="):
        check_micro_batch(value, 32)


@pytest.mark.parametrize(("value", "share"), [(33, 32), (2, 1), (1000, 999)])
def test_more_than_a_replica_has_is_refused(value, share):
    with pytest.raises(BatchError, match=rf"(?s)\({share}\)\.\nReceived: micro_batch={value}\. Give fewer"):
        check_micro_batch(value, share)


@pytest.mark.parametrize("value", [1, "auto"])
def test_global_batch_is_needed(value):
    with pytest.raises(BatchError, match="no global_batch"):
        check_micro_batch(value, None)


@pytest.mark.parametrize("value", [None, 1, 31, 32, "auto"])
def test_good_values(value):
    check_micro_batch(value, 32)
    check_micro_batch(None, None)


@pytest.mark.parametrize(
    ("rows", "most", "tried"),
    [
        (64, 100, [64]),
        (64, 64, [64]),
        (64, 63, [64, 32]),
        (100, 6, [100, 50, 25, 13, 7, 4]),
        (3, 1, [3, 2, 1]),
        (1, 1, [1]),
    ],
)
def test_halved_until_it_fits(rows, most, tried):
    asked = []
    assert halve_until_it_fits(rows, lambda each: asked.append(each) or each <= most) == tried[-1]
    assert asked == tried


def test_not_even_one_row_fits():
    with pytest.raises(BatchError, match="One example must fit"):
        halve_until_it_fits(8, lambda rows: False)


@pytest.fixture(scope="module")
def found():
    calls = [(f"{CASES}:{name}", (NUM_REPLICAS,)) for name in ("searches", "too_little_memory", "masks")]
    # oneDNN's allocator tries for ten seconds before it says that there is no memory, thirty times here; without it
    # that is said at once.
    results = run_together(calls, env={"TF_ENABLE_ONEDNN_OPTS": "0"})
    for result in results.values():
        assert not isinstance(result, Failure), result
    return {target.partition(":")[2]: result for (target, _), result in results.items()}


@pytest.mark.parametrize(
    ("most", "text"),
    [
        ("8", "micro_batch 8, so 1 micro-step(s) of each replica's rows."),
        ("3", "micro_batch 2, so 4 micro-step(s) of each replica's rows."),
    ],
)
def test_auto_halves_what_runs_out_of_memory(found, most, text):
    said, difference = found["too_little_memory"][most]
    assert said == text
    assert difference < 1e-6


@pytest.mark.parametrize(
    ("case", "error", "part"),
    [
        ("0", "BatchError", "One example must fit"),
        ("own train_step", "ModelError", "LossByHand"),
        ("own train_step, given", "ModelError", "LossByHand"),
        ("one number", "ModelError", "one number of the whole batch"),
        ("any length", "ModelError", "None"),
    ],
)
def test_refused(found, case, error, part):
    kind, text = found["too_little_memory"][case]
    assert (kind, part in text, "\nReceived: " in text) == (error, True, True), text


def test_auto_searches_once_per_compile(found):
    assert found["searches"] == [1, 1, 2]


def test_plan_knows(found):
    assert found["too_little_memory"]["plan"] == (3, 3)


def test_every_row_of_every_micro_step_has_a_mask_of_its_own(found):
    masks = found["masks"]
    # 2 steps of 24 rows. Some are seen twice, with the same mask: by the pass that looks for denominators.
    assert len(masks["once"]) == len(set(masks["parts"])) == 48
    assert sorted(masks["parts"]) == sorted(masks["again"])
    assert set(masks["parts"]) != set(masks["once"])


def test_generators_move_on_as_without_micro_steps(found):
    masks = found["masks"]
    assert masks["state"] == masks["state of parts"]
    assert masks["state"][0] == masks["state"][-1]


def test_less_memory_for_the_same_weights():
    at_once, weights = run_case(f"{CASES}:peak_bytes", args=(None,))
    in_parts, same_weights = run_case(f"{CASES}:peak_bytes", args=(512,))
    # 16 activations and slopes of 8192 x 512 are 270 MB; in parts a sixteenth of that, and sums of gradients.
    assert in_parts < at_once / 2
    assert same_weights == pytest.approx(weights, rel=1e-5)


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_what_draws_without_a_seed(num_replicas):
    found = run_case(f"{CASES}:drawing_without_seed", args=(num_replicas,))
    assert np.isfinite(found["losses"]).all()
    assert found["left alone"]


def test_other_logs_than_those_of_metrics_are_refused():
    assert "Received: largest in the `compute_metrics` of model 'more'" in run_case(f"{CASES}:more_is_logged")
