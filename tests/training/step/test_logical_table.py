"""Every row of the table of what goes with logical replicas has a test; those that other files lack are here."""

import re

import pytest

from tests.processes import run_case
from tests.repository import ROOT
from tests.training.contract import OPTIMIZER_TOLERANCE, TOLERANCE, differences
from tests.training.step import cases_logical_replicas as others
from tests.training.step import cases_logical_table as cases
from tests.training.step import test_deterministic, test_logical_counts, test_logical_replicas
from tests.training.together import Failure, run_together

CASES = "tests.training.step.cases_logical_table"
# A float16 has eleven bits, a bfloat16 eight.
ROUNDING = {"mixed_float16": 2.0**-9, "mixed_bfloat16": 2.0**-6}


@pytest.fixture(scope="module")
def on_four_devices():
    return run_case(f"{CASES}:runs", args=(cases.LOGICAL, None), timeout_s=300.0)


@pytest.fixture(scope="module", params=(1, 3))
def on_devices(request):
    return run_case(f"{CASES}:runs", args=(request.param, cases.LOGICAL), timeout_s=300.0)


@pytest.mark.parametrize("name", cases.RUNS)
def test_is_the_run_of_as_many_devices(on_devices, on_four_devices, name):
    found = differences(on_devices[name], on_four_devices[name])
    by_key = {"optimizer": OPTIMIZER_TOLERANCE, "noise": 1e-3}
    allowed = {key: ROUNDING.get(name, by_key.get(key, TOLERANCE)) for key in found}
    assert found
    assert {key: gap for key, gap in found.items() if not gap <= allowed[key]} == {}


@pytest.fixture(scope="module")
def digests():
    return {devices: run_case(f"{CASES}:digests", args=(devices,), timeout_s=300.0) for devices in (1, 3, 4)}


@pytest.mark.parametrize("devices", [3, 4])
@pytest.mark.parametrize("name", cases.RUNS)
def test_the_same_bits(digests, devices, name):
    # What is measured of a run is no part of it: it agrees to rounding, above.
    ours, expected = ({key: each for key, each in digests[n][name].items() if key != "noise"} for n in (devices, 1))
    assert expected
    assert ours == expected


@pytest.mark.parametrize("deterministic", [False, True])
def test_synchronised_with_as_many_devices(deterministic):
    ours, expected = (
        run_case(f"{CASES}:synchronized", args=given) for given in ((cases.LOGICAL, deterministic), (None, False))
    )
    found = differences(ours, expected)
    assert found
    assert {key: gap for key, gap in found.items() if not gap <= OPTIMIZER_TOLERANCE} == {}


@pytest.fixture(scope="module", params=(False, True))
def refused(request):
    [found] = run_together([(f"{CASES}:refused", (request.param,))]).values()
    assert not isinstance(found, Failure), found
    return found


REFUSED = {
    "sharding": ("DataError", "sharding='files', logical_replicas=4"),
    "gather_rows": ("ModelError", "a call of `tfscale.gather_rows`"),
    "Recovery, other logical replicas": ("RecoveryError", "logical replicas: 4 when it was saved, 3 now"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_by_name(refused, name):
    kind, part = REFUSED[name]
    said, text = refused[name]
    assert (said, part in text) == (kind, True), text


RUN, BITS, NO = "runs", "to the bit", "refused"
# By the begin of a row: the cases that show its columns.
SHOWN = {
    "Keras's `train_step`": [
        (RUN, "masked sequence loss, weighted"),
        (RUN, "embedding, sparse gradients and clipnorm"),
        (BITS, "masked sequence loss, weighted"),
        (BITS, "embedding, sparse gradients and clipnorm"),
    ],
    "`compute_loss`": [(RUN, "own compute_loss, EMA"), (BITS, "own compute_loss, EMA")],
    "`gradient_accumulation_steps`": [(RUN, "accumulation, clipnorm"), (NO, "accumulation")],
    "`steps_per_execution`": [(RUN, "steps_per_execution"), (BITS, "steps_per_execution")],
    "`jit_compile=True`": [(RUN, "jit_compile"), (NO, "jit_compile")],
    "`run_eagerly=True`": [(RUN, "run_eagerly"), (NO, "run_eagerly")],
    "`mixed_float16`": [
        *((kind, name) for kind in (RUN, BITS) for name in ("mixed_float16", "mixed_bfloat16")),
    ],
    "`train_on_batch`": [(RUN, "train_on_batch"), (BITS, "train_on_batch")],
    "`dp.dataset`": [(RUN, "dp.dataset with map_fn"), (BITS, "dp.dataset with map_fn")],
    "several workers": [("test", "test_on_two_workers_too"), ("test", "test_the_same_bits_on_two_workers")],
    "`Recovery` on another number": [
        ("test", "test_goes_on_on_fewer_devices"),
        ("test", "test_a_run_that_goes_on_elsewhere_is_the_same_to_the_bit"),
    ],
    "`Recovery` with another number": [(NO, "Recovery, other logical replicas")],
    "`Recovery` with other versions": [
        ("test", "test_a_run_that_cannot_go_on_to_the_bit_says_what_has_changed"),
    ],
    "`NoiseScale`": [(RUN, "callbacks that watch"), (BITS, "callbacks that watch")],
    '`batch_norm="local"`': [
        (RUN, "layers that draw, batches of several lengths"),
        (BITS, "layers that draw, batches of several lengths"),
    ],
    '`batch_norm="synchronized"`': [("test", "test_synchronised_with_as_many_devices"), (NO, "synchronised")],
    "code of your own": [(RUN, "own layers"), (BITS, "own layers"), (NO, "own code")],
    "`tf.random`": [(NO, "tf.random")],
    "`predict`, or": [(NO, "predict that draws"), (NO, "test_step that draws")],
    "a `train_step`": [(NO, "own train_step"), (NO, "loop by hand"), (NO, "distributed by hand")],
    "rows that meet": [
        *((NO, name) for name in ("one number", "metric of all rows", "gather_rows", "stateful RNN")),
    ],
    "`micro_batch`": [
        *(
            (NO, name)
            for name in ("micro_batch", "worker_load", "sharding", "compression", "double buffering", "AdaScale")
        ),
    ],
}


def test_every_row_of_the_guide_has_its_cases():
    text = (ROOT / "docs/how-to/logical-replicas.md").read_text()
    table = re.search(r"^\| beside it \| logical replicas \|.*?\n\n", text, re.MULTILINE | re.DOTALL)
    rows = [line.split(" | ") for line in table[0].strip().splitlines()[2:]]
    assert len(rows) == len(SHOWN)
    known = {
        RUN: {*others.RUNS, *cases.RUNS},
        BITS: {*others.TO_THE_BIT, *cases.RUNS},
        NO: {*REFUSED, *test_logical_replicas.REFUSED, *test_deterministic.REFUSED},
        "test": {*globals(), *vars(test_logical_replicas), *vars(test_logical_counts), *vars(test_deterministic)},
    }
    for row, (begin, shown) in zip(rows, SHOWN.items(), strict=True):
        _, logical, bits = (row[0].removeprefix("| "), row[1], row[2].removesuffix(" |"))
        assert row[0].startswith(f"| {begin}")
        assert [each for kind, each in shown if each not in known[kind]] == []
        kinds = {kind for kind, _ in shown}
        # What a row says goes with the kind of its cases.
        assert (RUN in kinds) <= (logical.startswith(("works", "of one", "refused, unless")))
        assert (BITS in kinds) == (bits.startswith("to the bit") and "test" not in kinds)
        assert (NO in kinds) == ("refused" in logical + bits)
