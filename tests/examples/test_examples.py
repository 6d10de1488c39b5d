"""Every example runs, and ends with the result that it is there to show."""

import ast
import os
import re
import subprocess
import sys

import h5py
import numpy as np
import pytest

from tests.examples.cases_examples import EXAMPLES
from tests.processes import run_case, run_workers
from tfscale import resolve_cluster

RUN = "tests.examples.cases_examples:run_script"
SCRIPTS = ("fit_digits.py", "absl_flags.py", "multi_worker.py", "custom_loop.py")
# What the scripts share, and the demo.
OTHERS = ("demo.py", "pull_the_plug.py", "digits_recovery.py", "digits_training.py", "digits_dataset.py")
OTHERS += ("know_before_you_rent.py", "same_run_anywhere.py")
# tests/engines/test_ray.py runs them.
ON_RAY = ("ray_train.py", "ray_tune.py")
ABSL_RESULT = r"^(\d) replicas: .*test accuracy (\S+)$"

# Keras warns of its own default, `shuffle=True`, whenever `fit` gets a dataset.
keras_default = pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")


@keras_default
def test_fit_digits():
    printed = run_case(RUN, args=("fit_digits.py",))
    replicas, accuracy = re.search(r"^(\d) replicas: .*test accuracy (\S+)$", printed, re.MULTILINE).groups()
    assert replicas == "4"
    assert float(accuracy) > 0.9


@keras_default
@pytest.mark.parametrize(
    ("flags", "replicas", "steps"),
    [
        # 1500 examples are 30 batches of 50.
        (["--global_batch=50"], 1, 30),
        (["--global_batch=50", "--simulate_replicas=3"], 3, 30),
        (["--per_replica_batch=32", "--simulate_replicas=2", "--examples_per_epoch=1500", "--warmup_epochs=1"], 2, 24),
    ],
)
def test_absl_flags(flags, replicas, steps):
    printed = run_case(RUN, args=("absl_flags.py", "--epochs=3", *flags))
    assert "Epoch 3/3" in printed
    assert f"{steps}/{steps}" in printed
    found, accuracy = re.search(ABSL_RESULT, printed, re.MULTILINE).groups()
    assert int(found) == replicas
    assert float(accuracy) > 0.85


@keras_default
def test_absl_flags_on_two_workers():
    chief, other = run_workers(RUN, 2, args=("absl_flags.py", "--epochs=2"))
    assert "Epoch 2/2" in chief
    assert len(other.splitlines()) == 1
    replicas, accuracy = re.search(ABSL_RESULT, chief, re.MULTILINE).groups()
    assert replicas == "2"
    assert float(accuracy) > 0.8
    assert chief.splitlines()[-1] == other.splitlines()[-1]


@keras_default
def test_multi_worker(tmp_path):
    alone = run_case(RUN, args=("multi_worker.py",))
    model = tmp_path / "digits.keras"
    chief, other = run_workers(RUN, 2, args=("multi_worker.py", "--save", str(model)))
    assert chief.splitlines()[-1].startswith("worker 0 of 2: ")
    # The chief alone shows progress.
    assert len(other.splitlines()) == 1
    results = [re.search(r"^worker . of .: (.*)$", each, re.MULTILINE)[1] for each in (chief, other)]
    assert results[0] == results[1]
    loss, accuracy = map(float, re.findall(r"[\d.]+", results[0]))
    loss_alone = float(re.search(r"^worker 0 of 1: loss ([\d.]+)", alone, re.MULTILINE)[1])
    # Its ReLUs let two float32 runs drift apart.
    assert loss == pytest.approx(loss_alone, rel=0.02)
    assert accuracy > 0.9
    assert model.stat().st_size > 10_000


def test_multi_worker_under_the_launcher(tmp_path):
    environ = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    command = ["launch", "--workers", "2", "--log-dir", str(tmp_path), str(EXAMPLES / "multi_worker.py")]
    ended = subprocess.run(
        [sys.executable, "-m", "tfscale", *command],
        cwd=EXAMPLES.parent,
        env={**environ, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = re.findall(r"^\[(.)\] worker (.) of 2: (.*)$", ended.stdout, re.MULTILINE)
    assert sorted(each[:2] for each in results) == [("0", "0"), ("1", "1")]
    assert len({result for *_, result in results}) == 1
    assert "worker 1 of 2: " in (tmp_path / "worker-1.log").read_text()


def test_multi_worker_shows_the_tf_config_of_both_workers():
    docstring = ast.get_docstring(ast.parse((EXAMPLES / "multi_worker.py").read_text()))
    specs = [resolve_cluster({"TF_CONFIG": value}) for value in re.findall(r"TF_CONFIG='(.*?)'", docstring, re.DOTALL)]
    assert [spec.rank for spec in specs] == [0, 1]
    assert specs[0].workers == specs[1].workers
    assert specs[0].num_workers == 2


def test_custom_loop_ends_with_one_replicas_weights(tmp_path):
    files = {count: tmp_path / f"{count}.weights.h5" for count in (1, 3)}
    printed = {count: run_case(RUN, args=("custom_loop.py", str(count), str(file))) for count, file in files.items()}
    assert printed[3] == printed[1]
    assert float(re.search(r"test accuracy (\S+)", printed[3])[1]) > 0.85
    expected, weights = _arrays(files[1]), _arrays(files[3])
    assert len(expected) == 4
    for name, array in expected.items():
        np.testing.assert_allclose(weights[name], array, rtol=0, atol=1e-5 * np.abs(array).max(), err_msg=name)


def _arrays(file):
    arrays = {}
    with h5py.File(file) as content:
        content.visititems(lambda name, item: arrays.update({name: item[()]} if isinstance(item, h5py.Dataset) else {}))
    return arrays


def test_every_script_is_known_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*SCRIPTS, *OTHERS, *ON_RAY}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_is_short(name):
    assert len((EXAMPLES / name).read_text().splitlines()) < 60


@pytest.mark.parametrize("name", [*SCRIPTS, *OTHERS, *ON_RAY])
def test_readme_names_every_script(name):
    assert f"({name})" in (EXAMPLES / "README.md").read_text()


def test_readme_commands_run_scripts_that_exist():
    named = re.findall(r"python (examples/\S+\.py)", (EXAMPLES / "README.md").read_text())
    assert {name.removeprefix("examples/") for name in named} >= {*SCRIPTS, "demo.py"}
    assert [name for name in named if not (EXAMPLES.parent / name).is_file()] == []


def test_know_before_you_rent(tmp_path):
    printed = run_case(RUN, args=("know_before_you_rent.py", "--small", "--output", str(tmp_path)), timeout_s=280)
    commands = re.findall(r"^\$ tfscale (\w+)(?: (--check))?", printed, re.MULTILINE)
    assert [name for name, _ in commands if name != "plan"] == ["measure", "study"]
    assert commands[-1] == ("plan", "--check")
    number = re.search(r"one replica, and (\d) that are simulated here", printed)[1]
    # The last table: the run of one replica, and that of the number that was advised, with its verdict.
    first, last = re.findall(rf"^{re.escape(str(tmp_path))}/runs/\S+ +(\d) +(\d+) .*$", printed, re.MULTILINE)
    assert (first, last) == (("1", "16"), (number, str(16 * int(number))))
    assert re.search(r"to [\d.e+inf]+: (came true|did not come true|not reached)", printed)
    assert len(re.findall("<- take this", printed)) >= 1
    assert (tmp_path / "study" / "study.html").is_file()


def test_same_run_anywhere():
    printed = run_case(RUN, args=("same_run_anywhere.py",), timeout_s=400)
    digests = re.findall(r"^(\d (?:device|worker)s?) +(\w{16})$", printed, re.MULTILINE)
    assert [run for run, _ in digests] == ["1 device", "2 devices", "3 devices", "2 workers"]
    assert len({digest for _, digest in digests}) == 1
