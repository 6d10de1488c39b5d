"""The contract on GPUs: `make test-gpu`. Without a GPU these are skipped; what they run is tried on logical CPUs."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.gpu.cases_gpu import CASES, SUMMED
from tests.gpu.logical import count_logical, count_processes, memory_growth
from tests.processes import run_case
from tests.training import contract_run
from tests.training.contract_rows import shown_cases
from tfscale.cluster.nvml import list_gpus
from tfscale.cluster.own_gpus import VISIBLE
from tfscale.launch.gpus import find_gpus

GPUS = find_gpus(os.environ, list_gpus)
# Parts of a machine's single GPU; with more GPUs each is one replica.
TOTAL_BYTES = min((gpu.total_bytes or 0 for gpu in list_gpus()), default=0) or None
NUM_LOGICAL = count_logical(TOTAL_BYTES) if GPUS else 2
NUM_PROCESSES = count_processes(TOTAL_BYTES, NUM_LOGICAL, os.cpu_count() or 1) if len(GPUS) == 1 else 1
ON_GPUS = {VISIBLE: ",".join(GPUS), **memory_growth(len(GPUS))}
NAMES = (
    *shown_cases(),
    *("mixed_bfloat16", "mixed_float16, jit_compile", "jit_compile, batch norm"),
    "fp16, last batch uneven",
    *CASES,
)
ONE_PACK, SMALL_PACKS = 0, 64
_TIMEOUT_S = 600.0

needs_gpu = pytest.mark.skipif(not GPUS, reason="no GPU: the driver lists none, or CUDA_VISIBLE_DEVICES hides them")


def on(where, function, *args):
    return run_case(f"tests.gpu.cases_gpu:{function}", args=args, env=where, timeout_s=_TIMEOUT_S)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of the contract's cases on GPUs."""
    directory, references = (tmp_path_factory.mktemp(name) for name in ("gpu", "gpu_references"))

    def start(left, timeout_s):
        args = (left, NUM_LOGICAL, str(directory), str(references))
        # Forks come from one server, which takes one call at a time.
        case, within_s = "tests.gpu.cases_gpu:run_contract", timeout_s + _TIMEOUT_S
        run_case(case, args=args, env=ON_GPUS, timeout_s=within_s, fresh=NUM_PROCESSES > 1)

    parts = [NAMES[first::NUM_PROCESSES] for first in range(NUM_PROCESSES)]
    with ThreadPoolExecutor(NUM_PROCESSES) as pool:
        found = list(pool.map(lambda part: contract_run.run_all(part, start, directory), parts))
    return {name: result for each in found for name, result in each.items()}


@needs_gpu
@pytest.mark.parametrize("name", NAMES)
def test_equals_one_gpu(results, name):
    contract_run.check({**contract_run.load_cases(), **CASES}[name], results[name])


@needs_gpu
def test_gpus_are_joined_by_nccl_and_parts_of_one_are_not():
    found = on(ON_GPUS, "communication", NUM_LOGICAL)
    count = len(found["devices"])
    assert all(name.startswith("GPU:") for name in found["devices"])
    assert found["sums"] == [[float(count)] * 3] * count
    if len(GPUS) > 1:
        assert (found["implementation"], found["nccl"], count) == ("nccl", "taken", len(GPUS))
    else:
        assert found["implementation"] == "ring"
        assert "which NCCL refuses" in found["reason"]
        assert "which NCCL refuses" in found["nccl"]


@needs_gpu
def test_sums_of_every_type_of_number():
    found = on(ON_GPUS, "sums", NUM_LOGICAL)
    assert found.pop("bf16") == 'Received: GPUs, on which no collective does, NCCL\'s neither. Use "fp16" or "none".'
    assert found == dict.fromkeys(SUMMED, [float(NUM_LOGICAL if len(GPUS) == 1 else len(GPUS))] * 3)


@needs_gpu
@pytest.mark.parametrize("jit_compile", [False, True])
def test_packs_and_xla_change_rounding_alone(jit_compile):
    one = on(ON_GPUS, "weights_after", NUM_LOGICAL, ONE_PACK, False, False)
    packs = on(ON_GPUS, "weights_after", NUM_LOGICAL, SMALL_PACKS, False, jit_compile)
    for first, second in zip(one, packs, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-6)


@needs_gpu
def test_one_trace_for_all_replicas_changes_rounding_alone():
    each = on(ON_GPUS, "weights_after", NUM_LOGICAL, ONE_PACK, False, False)
    once = on({**ON_GPUS, "TFSCALE_TRACE": "once"}, "weights_after", NUM_LOGICAL, ONE_PACK, False, False)
    for first, second in zip(each, once, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-6)


@needs_gpu
def test_deterministic_ops_give_the_same_bits():
    first, second = (on(ON_GPUS, "weights_after", NUM_LOGICAL, ONE_PACK, True, False) for _ in range(2))
    assert all(np.array_equal(*pair) for pair in zip(first, second, strict=True))


@needs_gpu
def test_logical_replicas_give_the_same_bits_on_any_parts_of_a_gpu():
    one, *others = (on(ON_GPUS, "digests", parts) for parts in (1, 2, 3, 4))
    for name, found in one.items():
        assert [each[name] for each in others] == [found] * len(others), name


@needs_gpu
def test_a_step_in_tf32_is_looked_at_in_float32():
    losses = on(ON_GPUS, "checked", 3, True, "auto")
    np.testing.assert_allclose(losses, on(ON_GPUS, "checked", 3, True, "off"), rtol=1e-3)


@pytest.mark.parametrize(
    ("gib", "count"), [(None, 2), (0, 2), (4, 2), (8, 3), (16, 7), (18, 8), (24, 8), (80, 8), (141, 8)]
)
def test_as_many_logical_gpus_as_fit(gib, count):
    assert count_logical(None if gib is None else gib * 2**30) == count


@pytest.mark.parametrize(
    ("gib", "num_logical", "cores", "count"),
    [(None, 8, 16, 1), (4, 2, 16, 1), (80, 8, 16, 4), (141, 8, 16, 7), (141, 8, 4, 2), (141, 2, 2, 1)],
)
def test_as_many_processes_as_find_room(gib, num_logical, cores, count):
    assert count_processes(None if gib is None else gib * 2**30, num_logical, cores) == count


def test_cases_exist():
    assert set(NAMES) <= {*contract_run.load_cases(), *CASES}


def test_what_runs_on_gpus_runs_on_logical_cpus(tmp_path):
    found = on({}, "communication", 2)
    assert found["devices"] == ["CPU:0", "CPU:1"]
    assert (found["implementation"], found["sums"]) == ("ring", [[2.0] * 3] * 2)
    assert "no GPU among the replicas" in found["nccl"]
    assert on({}, "sums", 2) == {**dict.fromkeys(SUMMED, [2.0] * 3), "bf16": "taken"}
    one, packs = (on({}, "weights_after", 2, *each) for each in ((ONE_PACK, True, False), (SMALL_PACKS, False, True)))
    for first, second in zip(one, packs, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-6)
    (tmp_path / "references").mkdir()
    names = ("even batches", *CASES)
    on({}, "run_contract", names, 3, str(tmp_path), str(tmp_path / "references"))
    cases = {**contract_run.load_cases(), **CASES}
    for name, result in contract_run.run_all(names, None, tmp_path).items():
        contract_run.check(cases[name], result)


def test_only_parts_of_a_gpu_have_a_fixed_size():
    assert [memory_growth(count)["TF_FORCE_GPU_ALLOW_GROWTH"] for count in (0, 1, 2, 8)] == [
        "true",
        "false",
        "true",
        "true",
    ]
