"""With `deterministic=True` runs of L logical replicas are equal to the bit, on any devices and workers."""

import pytest

from tests.processes import run_case, run_workers
from tests.training.step import cases_logical_replicas as cases

CASES = "tests.training.step.cases_logical_replicas"


@pytest.fixture(scope="module")
def on_one_device():
    return run_case(f"{CASES}:digests", args=(1,), timeout_s=600.0)


@pytest.fixture(scope="module", params=(2, 3, 4))
def on_devices(request):
    return run_case(f"{CASES}:digests", args=(request.param,), timeout_s=600.0)


@pytest.mark.parametrize("name", cases.TO_THE_BIT)
def test_the_same_bits_on_any_number_of_devices(on_one_device, on_devices, name):
    assert on_one_device[name]
    assert on_devices[name] == on_one_device[name]


@pytest.mark.parametrize("devices", [1, 2])
def test_the_same_bits_on_two_workers(on_one_device, devices):
    for results in run_workers(f"{CASES}:digests", 2, args=(devices, cases.ON_WORKERS), timeout_s=400.0):
        for name in cases.ON_WORKERS:
            assert results[name] == on_one_device[name]


def test_without_it_bits_differ():
    # Else the other tests would say nothing.
    one, two = (run_case(f"{CASES}:runs", args=(n, cases.LOGICAL, cases.ON_WORKERS[:1])) for n in (1, 2))
    (name,) = one
    assert cases.digest_of(one[name]) != cases.digest_of(two[name])


def test_a_run_that_goes_on_elsewhere_is_the_same_to_the_bit(tmp_path):
    _, in_peace = run_case(f"{CASES}:trained_to_the_bit", args=(1, str(tmp_path / "peace"), 3))
    run_case(f"{CASES}:trained_to_the_bit", args=(4, str(tmp_path / "moved"), 1))
    steps, moved = run_case(f"{CASES}:trained_to_the_bit", args=(3, str(tmp_path / "moved"), 3))
    assert steps == 2 * 4
    assert moved == in_peace


def test_a_run_that_cannot_go_on_to_the_bit_says_what_has_changed(tmp_path):
    def go_on(devices, epochs, onednn, deterministic=True):
        args = (devices, str(tmp_path / "run"), epochs, deterministic)
        told = run_case(f"{CASES}:told_when_it_goes_on", args=args, env={"TF_ENABLE_ONEDNN_OPTS": onednn})
        # On a busy machine a save may be slow, which is said as well.
        return [each for each in told if "A save takes longer" not in each]

    assert go_on(1, 1, "0") == []
    # Another number of devices changes no bits.
    assert go_on(2, 2, "0") == []
    [told] = go_on(2, 3, "1")
    assert "goes on with other bits than it would have had" in told
    assert told.endswith("onednn: '0' when it was saved, '1' now.")
    [told] = go_on(1, 4, "1", deterministic=False)
    assert told.endswith("deterministic: True when it was saved, False now.")
    # Who has not asked for bits is told nothing of them.
    assert go_on(1, 5, "0", deterministic=False) == []


REFUSED = {
    "no bool": ("BatchError", "Received: deterministic=1"),
    "no logical replicas": ("BatchError", "Give logical_replicas"),
    "no seed": ("BatchError", "Give seed"),
    "jit_compile": ("ModelError", "with jit_compile=True"),
    "run_eagerly": ("ModelError", "with run_eagerly=True"),
    "accumulation": ("ModelError", "with gradient_accumulation_steps"),
    "prepare, no bool": ("BatchError", "Received: deterministic=1"),
    "prepare, no logical replicas": ("BatchError", "Received: logical_replicas=None. Give logical_replicas"),
    "prepare": ("no error", ""),
    "fine": ("no error", ""),
}


@pytest.fixture(scope="module")
def refused():
    return run_case(f"{CASES}:refused_to_the_bit")


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_by_name(refused, name):
    kind, part = REFUSED[name]
    said, text, _ = refused[name]
    assert said == kind
    assert part in text


def test_tensorflow_that_runs_already_is_refused():
    said = run_case(f"{CASES}:too_late")
    assert list(said) == ["DataParallel", "prepare"]
    for kind, text, _ in said.values():
        assert kind == "DeviceError"
        assert "Received: as many as cores. Make `DataParallel` before" in text
