"""What a script may rely on. A change here changes every script: it belongs in CHANGELOG.md."""

import argparse
import ast
import importlib.util

import pytest

import tfscale
from tests.processes import run_case
from tests.repository import ROOT, library_files
from tfscale import cli

NAMES = {
    "AdaScaleRule",
    "AdaScaleSGD",
    "BatchError",
    "BatchPlan",
    "CallbackError",
    "ClusterError",
    "ClusterSpec",
    "CommunicationError",
    "Compression",
    "DataError",
    "DataParallel",
    "DeviceError",
    "DriftError",
    "ErrorFeedback",
    "LaunchError",
    "LinearRule",
    "MeasureError",
    "ModelError",
    "Network",
    "NoRule",
    "NonFiniteError",
    "ParityError",
    "PowerSGD",
    "Recipe",
    "RecordFiles",
    "RecoveryError",
    "ReportError",
    "Reduction",
    "ReplicaSchedule",
    "ScalingError",
    "ScalingRule",
    "ScriptError",
    "SqrtRule",
    "StepDecay",
    "StudyError",
    "TfscaleError",
    "VersionError",
    "__version__",
    "gather_rows",
    "make_strategy",
    "prepare",
    "resolve_cluster",
    "scale_hyperparameters",
    "simulate_replicas",
    "sum_gradients",
    "sum_over_examples",
    "sweep",
    "verify",
    "verify_bitwise",
}

# Of the modules that are public themselves.
MODULES = {
    "callbacks": {
        "ChiefOnly",
        "DriftWatch",
        "NoiseScale",
        "NonFiniteWatch",
        "Recovery",
        "ReplicaScaling",
        "ScalingReport",
        "StallWatch",
    },
    "flags": {"data_parallel", "define"},
    "loops": {"ReplicaBatch", "all_gather", "all_reduce_sum", "apply_reduced", "global_mean", "run_on_replicas"},
    "ray": {"Config", "Report", "Trainer"},
    "study": {"LawFit", "Study", "Trial", "TrialResult", "fit", "fit_law", "read_results"},
}

FLAGS = {
    "": {"--help", "--version"},
    "doctor": {"--help", "--json", "--timeout-s"},
    "init": {"script", "--global-batch", "--help", "--json", "--simulate", "--write"},
    "launch": {
        "arguments",
        "script",
        "--cores-per-worker",
        "--dry-run",
        "--gpus",
        "--help",
        "--hosts",
        "--image",
        "--isolate-network",
        "--jobset",
        "--kubernetes",
        "--log-dir",
        "--json",
        "--max-restarts",
        "--module",
        "--name",
        "--rank",
        "--replicas-per-worker",
        "--volume",
        "--workers",
    },
    "measure": {
        "build",
        "data",
        "--global-batch",
        "--help",
        "--json",
        "--output",
        "--per-layer",
        "--steps",
    },
    "plan": {
        "--adam-beta-1",
        "--batch-norm",
        "--beta-1",
        "--beta-2",
        "--calibrate",
        "--check",
        "--clipped-share",
        "--critical-batch",
        "--decay-steps",
        "--ema-momentum",
        "--ema-overwrite-frequency",
        "--epochs",
        "--epsilon",
        "--examples",
        "--global-batch",
        "--goal",
        "--help",
        "--json",
        "--latency",
        "--learning-rate",
        "--link",
        "--micro-batch",
        "--momentum",
        "--noise",
        "--optimizer",
        "--parameters",
        "--per-replica-batch",
        "--price-per-hour",
        "--reference-batch",
        "--replicas",
        "--rho",
        "--rule",
        "--run-steps",
        "--step-times",
        "--study",
        "--warmup-epochs",
        "--warmup-steps",
        "--weight-decay",
    },
    "report": {"directory", "--help", "--json", "--output"},
    "study": {
        "build",
        "data",
        "--at-a-time",
        "--batches",
        "--budget-epochs",
        "--budget-hours",
        "--directory",
        "--engine",
        "--help",
        "--json",
        "--micro-batch",
        "--no-report",
        "--reference-batch",
        "--rule",
        "--search",
        "--seeds",
        "--target",
        "--trials",
        "--silent-s",
    },
    "sweep": {
        "objective",
        "--at-a-time",
        "--batch",
        "--carry-to",
        "--direction",
        "--directory",
        "--examples",
        "--help",
        "--json",
        "--no-picture",
        "--show-output",
        "--optimizer",
        "--prune",
        "--sampler",
        "--seed",
        "--shared",
        "--silent-s",
        "--space",
        "--timeout-s",
        "--trials",
    },
    "verify": {
        "build",
        "data",
        "--against",
        "--bitwise",
        "--epochs",
        "--global-batch",
        "--help",
        "--json",
        "--logical-replicas",
        "--replicas",
        "--workers",
    },
}


def test_names():
    assert set(tfscale.__all__) == NAMES
    assert set(dir(tfscale)) >= NAMES


def test_type_checkers_see_the_names_that_scripts_get():
    tree = ast.parse((ROOT / "tfscale" / "__init__.py").read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        alias.asname or alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    modules = {name: typed.pop(name) for name in tfscale._MODULES}
    assert set(modules.values()) == {"tfscale"}
    assert typed == tfscale._HOMES
    assert set(typed) | {"__version__"} == NAMES


def test_every_name_resolves():
    objects = NAMES - {"__version__"}
    assert run_case("tests.test_public_names:own_names", args=(objects,)) == objects


def own_names(names):
    return {getattr(tfscale, name).__name__ for name in names}


def test_every_public_module():
    assert set(tfscale._MODULES) == MODULES.keys()
    assert MODULES.keys() <= set(dir(tfscale))
    assert run_case("tests.test_public_names:names_of_modules") == MODULES


def names_of_modules():
    return {name: set(getattr(tfscale, name).__all__) for name in tfscale._MODULES}


def test_without_ray_the_names_of_its_module_say_what_is_missing(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else find_spec(name))
    monkeypatch.delitem(vars(tfscale.ray), "Trainer", raising=False)
    with pytest.raises(ImportError, match=r"`tfscale.ray.Trainer` needs Ray.*\n.*pip install 'tfscale\[ray\]'"):
        tfscale.ray.Trainer  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'Tuner'"):
        tfscale.ray.Tuner  # noqa: B018


def test_unknown_name():
    with pytest.raises(AttributeError, match="has no attribute 'optimise'"):
        tfscale.optimise  # noqa: B018


def test_no_module_hides_a_public_name():
    assert NAMES.isdisjoint(path.stem for path in library_files() if path.stem != "__init__")
    assert NAMES.isdisjoint(path.parent.name for path in library_files())


def test_every_error_is_a_tfscale_error_and_a_standard_one():
    errors = {getattr(tfscale, name) for name in NAMES if name.endswith("Error")}
    for error in errors - {tfscale.TfscaleError}:
        assert issubclass(error, tfscale.TfscaleError)
        assert issubclass(error, (ValueError, RuntimeError))


def test_flags():
    parser = cli.make_parser()
    [commands] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    found = {"": _flags(parser), **{name: _flags(sub) for name, sub in commands.choices.items()}}
    assert found == FLAGS


def _flags(parser):
    return {
        action.option_strings[-1] if action.option_strings else action.dest
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction)
    }
