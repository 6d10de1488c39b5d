"""Is a step that is traced once for all replicas the one that each traces by itself?"""

import numpy as np
import pytest

from tests.processes import run_case

CASES = "tests.replicas.cases_one_trace"
# Model, how it is compiled, and whether all that watches a run is there.
ROWS = [
    ("dense", "", False),
    ("dense", "clipped", False),
    ("dense", "accumulation", False),
    ("dense", "averaged", False),
    ("dense", "several steps", False),
    ("dense", "", True),
    ("dropout", "", False),
    ("BatchNormalization", "", False),
    ("tokens", "accumulation", False),
    ("loops", "", False),
    ("recurrent", "", False),
    ("rows of all", "", False),
]
# Part of the reason, by model.
BY_EACH = {
    "shared": "changes one thing of all replicas",
    "by number": "TypeError",
    "tf.random": "draws by a seed",
    "rows that meet": "the replicas meet in it",
}


@pytest.fixture(scope="module")
def compared():
    # Three replicas: the shares of twelve rows are alike, those of the last batch are not.
    return run_case(f"{CASES}:compare", args=(ROWS, 3), timeout_s=900)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_it_leaves_what_steps_traced_by_each_replica_leave(compared, row):
    differing, reasons = compared[row]
    assert not reasons
    assert not differing


@pytest.fixture(scope="module")
def reasons():
    return run_case(f"{CASES}:why_each", args=(list(BY_EACH), 2), timeout_s=900)


@pytest.mark.parametrize("name", BY_EACH)
def test_what_is_not_alike_is_traced_by_each_replica(reasons, name):
    assert reasons[name]
    assert all(BY_EACH[name] in reason for reason in reasons[name])


@pytest.mark.parametrize(("num_replicas", "rows", "kinds"), [(4, 8, 1), (3, 8, 2)])
def test_python_is_run_once_for_each_kind_of_share(num_replicas, rows, kinds):
    once, by_each = run_case(f"{CASES}:count_calls", args=(num_replicas, rows), timeout_s=900)
    # Keras runs it as often besides, whatever is traced: for shapes.
    assert by_each - once == num_replicas - kinds


def test_without_a_seed_replicas_draw_apart():
    drawn = run_case(f"{CASES}:draws", args=(3,))
    assert len(np.unique(drawn, axis=0)) == 3


def test_what_the_environment_asks_for_is_one_of_two():
    assert "Received: TFSCALE_TRACE='never'" in run_case(f"{CASES}:misspelt")
