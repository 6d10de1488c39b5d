"""The benchmark on GPUs: its numbers by hand, and the whole of it on two logical CPUs."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import environments
from benchmarks.gpu.__main__ import device_facts, main
from benchmarks.gpu.plan import CONTENDERS, GPTS, MODELS, TORCH, Gpt, Row, find_peak, render
from tests.processes import run_case
from tests.repository import ROOT
from tfscale.cluster.nvml import Driver, Gpu

_TIMEOUT_S = 600.0
ROW = Row("gpt", CONTENDERS[0], 2, 1000, 1e9, (0.1, 0.2, 0.4), 3.0, 2**30, 2.0)
FACTS = {
    "date": "today",
    "versions": {"keras": "3"},
    "policy": "mixed_bfloat16",
    "driver": "550",
    "num_devices": 2,
    "left_out": {},
}
HAS_TORCH = importlib.util.find_spec("torch") is not None
NOT_HERE = "it is not installed here; `make bench-torch` installs its build for CPUs"


@pytest.mark.parametrize(
    ("device", "policy", "tflops"),
    [
        ("NVIDIA A100-SXM4-40GB", "mixed_bfloat16", 312),
        ("NVIDIA A100-SXM4-40GB", "float32", None),
        ("NVIDIA H100 80GB HBM3", "mixed_float16", 989),
        ("NVIDIA H100 PCIe", "mixed_bfloat16", 756),
        ("NVIDIA H100 NVL", "mixed_bfloat16", None),
        ("Tesla T4", "mixed_bfloat16", None),
        ("Tesla T4 and Tesla V100-SXM2-16GB", "mixed_float16", None),
        ("CPU", "float32", None),
    ],
)
def test_peaks(device, policy, tflops):
    assert find_peak(device, policy) == (tflops and tflops * 1e12)


def test_operations_of_a_gpt_counted_by_hand():
    # One block of width 2: 4 matrices of 2 x 2 for attention, 2 x 8 and 8 x 2 after it; a head of 2 x 5.
    shape = Gpt(depth=1, width=2, heads=1, vocabulary=5, length=3)
    assert shape.num_parameters == 4 * 4 + 2 * 16 + 2 * 5 + 5 * 2 + 3 * 2
    # Scores and their use: 3 places times 2 numbers each, a multiplication and an addition, three times as much a step.
    assert shape.flops_per_token == 6 * (4 * 4 + 2 * 16 + 2 * 5) + 3 * 2 * (3 * 2 + 3 * 2)
    assert 95e6 < GPTS["full"].num_parameters < 105e6


def test_rows_and_table():
    assert ROW.items_per_s == 5000
    assert ROW.utilisation(1e13) == pytest.approx(5000 * 1e9 / 2e13)
    slower = dataclasses.replace(ROW, contender=CONTENDERS[2], step_s=(0.4,), peak_bytes=None)
    known = render([ROW, slower], {**FACTS, "device": "NVIDIA H200"})
    assert "200.00 [100.00 .. 400.00]" in known
    assert "0.500" in known.splitlines()[-1]
    assert f"{5e12 / 2 / 989e12:.1%}" in known
    unknown = render([ROW], {**FACTS, "device": "NVIDIA Z1"})
    assert "not known for NVIDIA Z1 in mixed_bfloat16: no MFU" in unknown
    assert unknown.splitlines()[-1].endswith("  -")
    assert "left out" not in unknown
    without = render([ROW], {**FACTS, "device": "CPU", "left_out": {TORCH: "so it is"}})
    assert f"{TORCH} is left out: so it is.\n" in without


def test_devices_are_named_with_their_driver():
    two = Driver("550.54.15", (Gpu(0, "GPU-0", "Tesla T4"), Gpu(1, "GPU-1", "Tesla T4")))
    assert device_facts(two, 2) == {"device": "Tesla T4", "driver": "550.54.15", "num_devices": 2}
    assert device_facts(Driver(), 2) == {"device": "CPU", "driver": "none", "num_devices": 2}


def test_without_a_gpu_it_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert main(["--json", str(tmp_path / "never.json")]) == 0
    assert "no GPU" in capsys.readouterr().out
    assert not (tmp_path / "never.json").exists()


def count_resnet50():
    from benchmarks.gpu import models

    return models.image_flops(models.build("resnet50", "full")), models.build("gpt", "full").count_params()


def test_operations_of_resnet50_are_those_of_its_paper():
    flops, num_parameters = run_case("tests.benchmarks.test_gpu:count_resnet50", timeout_s=_TIMEOUT_S)
    # He et al. 2015, table 1 (arXiv 1512.03385): 3.8e9 multiplications forward.
    assert flops == pytest.approx(6 * 3.8e9, rel=0.03)
    # Beside the matrices: biases and the scales of normalisations.
    assert num_parameters == pytest.approx(GPTS["full"].num_parameters, rel=0.002)


def run_on_cpus(file, *more):
    argv = ["--devices", "cpu", "--size", "tiny", "--rounds", "2", "--steps", "2", "--json", str(file), *more]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *argv], cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(file.read_text())


def test_pytorch_that_cannot_be_had_is_left_out_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr(environments, "TORCH_ENVIRONMENT", tmp_path / "environment")
    monkeypatch.setattr(environments, "TORCH_PACKAGES", (str(tmp_path / "torch-2.13.0-py3-none-any.whl"),))
    python, why = environments.python_with_torch(has_gpus=True)
    assert python is None
    assert why.startswith("it was not installed: ERROR: ")
    assert "torch-2.13.0" in why
    here = (Path(sys.executable), "") if HAS_TORCH else (None, NOT_HERE)
    assert environments.python_with_torch(has_gpus=False) == here


def test_an_environment_is_made_once(tmp_path):
    # Pip itself is there already: nothing is fetched.
    assert environments.make_environment(tmp_path / "e", ["pip"], _TIMEOUT_S) is None
    made_ns = (tmp_path / "e" / "pyvenv.cfg").stat().st_mtime_ns
    assert environments.make_environment(tmp_path / "e", ["pip"], _TIMEOUT_S) is None
    assert (tmp_path / "e" / "pyvenv.cfg").stat().st_mtime_ns == made_ns


def test_pytorch_that_does_not_start_is_left_out_and_the_others_are_measured(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    shown, record = run_on_cpus(tmp_path / "gpu.json", "--model", "gpt", "--torch-python", str(broken))
    assert f"{TORCH} is left out: it did not start (ended with status 3.)." in shown
    assert [row["contender"] for row in record["rows"]] == list(CONTENDERS[:-1])


def count_in_keras(model, size):
    from benchmarks.gpu import models

    return sum(weight.numpy().size for weight in models.build(model, size).trainable_weights)


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed: `make bench-torch`")
@pytest.mark.parametrize("size", ["full", "tiny"])
@pytest.mark.parametrize("model", MODELS)
def test_pytorch_has_the_same_models(model, size):
    from benchmarks.gpu import torch_models

    ours = sum(each.numel() for each in torch_models.build(model, size).parameters())
    assert ours == run_case("tests.benchmarks.test_gpu:count_in_keras", args=(model, size), timeout_s=_TIMEOUT_S)


def test_the_whole_of_it_on_two_logical_cpus(tmp_path):
    # `BENCHMARK_TORCH_PYTHON` names an interpreter that has PyTorch, where this one has not.
    named = os.environ.get("BENCHMARK_TORCH_PYTHON")
    shown, record = run_on_cpus(tmp_path / "gpu.json", *(["--torch-python", named] if named else []))
    assert "2 x CPU" in shown
    contenders = CONTENDERS if HAS_TORCH or named else CONTENDERS[:-1]
    assert (TORCH in record["left_out"]) == (TORCH not in contenders)
    found = {(row["model"], row["contender"]): row for row in record["rows"]}
    assert found.keys() == {(model, contender) for model in MODELS for contender in contenders}
    for (_, contender), row in found.items():
        assert row["num_replicas"] == (1 if contender == CONTENDERS[1] else 2)
        assert len(row["step_s"]) == 2
        assert min(row["step_s"]) > 0
        assert row["mfu"] is None
    for model in MODELS:
        ours, theirs = (found[model, contender] for contender in (CONTENDERS[0], CONTENDERS[2]))
        assert ours["items_per_step"] == theirs["items_per_step"]
        if model == "gpt":
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)


def test_an_interpreter_that_is_not_there_is_refused_before_anything_is_measured(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--devices", "cpu", "--torch-python", "/nonexistent"])
    assert "Received: /nonexistent" in capsys.readouterr().err
