"""What L logical replicas are: masks, what is refused, a run that goes on. Runs of them: `test_logical_counts.py`."""

import numpy as np
import pytest

from tests.processes import run_case
from tests.training.step import cases_logical_replicas as cases
from tests.training.together import Failure, run_together
from tfscale.errors import BatchError
from tfscale.training.step.logical_replicas import check_logical_replicas, logical_batch

CASES = "tests.training.step.cases_logical_replicas"


def test_goes_on_on_fewer_devices(tmp_path):
    _, in_peace = run_case(f"{CASES}:going_on", args=(4, str(tmp_path / "peace"), 3))
    run_case(f"{CASES}:going_on", args=(3, str(tmp_path / "moved"), 1))
    steps, moved = run_case(f"{CASES}:going_on", args=(2, str(tmp_path / "moved"), 3))
    assert steps == 2 * 4
    for one, other in zip(moved, in_peace, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * max(1e-3, float(np.abs(other).max())))


@pytest.fixture(scope="module")
def masks():
    return {devices: run_case(f"{CASES}:masks", args=(devices,)) for devices in (1, 3)}


def test_every_row_has_a_mask_of_its_own_and_the_same_anywhere(masks):
    # Some are seen twice, with the same mask: by the pass that looks for denominators.
    assert len(set(masks[1])) == cases.BATCH
    assert set(masks[1]) == set(masks[3])


@pytest.fixture(scope="module", params=(1, 2))
def refused(request):
    (found,) = run_together([(f"{CASES}:refused", (request.param,))]).values()
    assert not isinstance(found, Failure), found
    return request.param, found


REFUSED = {
    "no number": ("BatchError", "positive integer, or None"),
    "none": ("BatchError", "positive integer, or None"),
    "does not divide": (
        "BatchError",
        "logical_replicas=4, global_batch=26. Give, for example, logical_replicas=1 or",
    ),
    "micro_batch": ("BatchError", "micro_batch=2. Leave `micro_batch` out"),
    "compression": ("BatchError", "compression='bf16'"),
    "double buffering": ("BatchError", "double_buffering=True"),
    "worker_load": ("DataError", "worker_load=[1"),
    "own train_step": ("ModelError", "OwnStep"),
    "synchronised": ("ModelError", 'batch_norm="local"'),
    "AdaScale": ("ModelError", "AdaScale measures"),
    "tf.random": ("ModelError", "RandomStandardNormal"),
    "generator made outside": ("ModelError", "made outside of it"),
    "predict that draws": ("ModelError", "drawn from in `predict`"),
    "test_step that draws": ("ModelError", "a `test_step` of one's own"),
    "other division": ("DataError", "None of the data, 4 of the model"),
    "one number": ("ModelError", "one number of the whole batch"),
    "metric of all rows": ("ModelError", "which needs all rows of a batch"),
    "stateful RNN": ("ModelError", "stateful=True"),
    "loop by hand": ("ModelError", "given to `strategy.run`"),
    "own code": ("ParityError or ModelError", "logical_replicas"),
    "too few": ("BatchError", "at least the number of devices (2)"),
    "distributed by hand": ("ModelError", "distributed itself"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_by_name(refused, name):
    devices, found = refused
    if name not in found:
        assert devices == 1
        return
    kind, part = REFUSED[name]
    said, text, is_unchanged = found[name]
    assert said in kind.split(" or ")
    assert (part in text, "\nReceived:" in text) == (True, True), text
    # Those of the arguments have no weights.
    assert is_unchanged


def test_print_says_it():
    said, without = run_case(f"{CASES}:prepared_again", args=(3,))
    line = "Logical replicas: 8 of 6 rows each, of which a device runs 2 to 3, one after the other."
    assert "global batch 48, reference batch 6: batch_ratio 8" in said
    assert line in said
    assert "Logical" not in without


@pytest.mark.parametrize("value", [0, -1, 1.5, 8.0, True, "8", "auto"])
def test_bad_values_are_refused(value):
    with pytest.raises(BatchError, match=r"(?s)positive integer, or None.*\nReceived: logical_replicas="):
        check_logical_replicas(value, num_replicas=1)


@pytest.mark.parametrize(("value", "devices"), [(None, 8), (1, 1), (8, 8), (8, 3)])
def test_good_values(value, devices):
    check_logical_replicas(value, num_replicas=devices)


@pytest.mark.parametrize(("logical", "batch"), [(5, 24), (48, 24), (7, 8)])
def test_logical_replicas_must_divide_the_batch(logical, batch):
    with pytest.raises(BatchError, match=rf"(?s)must divide.*\nReceived: logical_replicas={logical}.*Give, for ex"):
        logical_batch(logical, None, batch)
