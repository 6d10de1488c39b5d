"""Bad input: the rule, what was received, the way out, and nothing half-done."""

import json

import pytest

from tests.processes import run_case
from tests.training.together import Failure, run_together

CASES = "tests.training.cases_errors"
NUM_REPLICAS = 3

# What is done wrong: the error, and a part of its text.
ARGUMENTS = {
    "neither batch": ("BatchError", "Exactly one of"),
    "both batches": ("BatchError", "Exactly one of"),
    "zero": ("BatchError", "positive integer"),
    "negative": ("BatchError", "global_batch=-24"),
    "fraction": ("BatchError", "global_batch=24.0"),
    "text": ("BatchError", "'24'"),
    "bool": ("BatchError", "True"),
    "fewer than replicas": ("BatchError", "at least the number of replicas (3)"),
    "batch_norm": ("ModelError", "'auto', 'local', 'synchronized'"),
    "unknown device": ("DeviceError", "GPU:7"),
    "too many devices": ("DeviceError", "simulate_replicas(4)"),
    "no devices": ("DeviceError", "empty"),
    "default strategy": ("DeviceError", "MirroredStrategy"),
    "one-device strategy": ("DeviceError", "OneDeviceStrategy"),
    "no strategy": ("DeviceError", "mirrored"),
    "TPU strategy": ("DeviceError", "TPUStrategy"),
    "parameter servers": ("DeviceError", "ParameterServerStrategy"),
    "communication": ("DeviceError", "NCCL"),
    "replicas too late": ("DeviceError", "before TensorFlow starts"),
    "replicas zero": ("DeviceError", "num_replicas=0"),
    "replicas bool": ("DeviceError", "num_replicas=True"),
    "replicas text": ("DeviceError", "num_replicas='3'"),
}
SCOPES = {
    "model outside": ("ModelError", "with dp.scope()"),
    "layer outside": ("ModelError", "with dp.scope()"),
    "built outside": ("ModelError", "first called. Do that inside `with dp.scope():`"),
    "built outside, updated by hand": ("ModelError", "call it for the first time, inside `with dp.scope():`"),
    "optimizer outside": ("ModelError", "optimizer"),
    "metric outside": ("ModelError", "metric"),
    "compile outside": ("ModelError", "with dp.scope()"),
    "new optimizer outside": ("ModelError", "inside `with dp.scope():`"),
    "compile again outside, with an optimizer": ("ModelError", "inside `with dp.scope():`"),
    "compile before prepare": ("ModelError", "call compile, inside `with dp.scope():`"),
    "optimizer in a list": ("ModelError", "inside `with dp.scope():`"),
    "own function, of a class": ("ModelError", "Put what it computes into `test_step`"),
    "own function, of a model": ("ModelError", "Put what it computes into `train_step`"),
    "stateful RNN": ("ModelError", "layer 'kept' with stateful=True, and 3 replicas. Train it on one device"),
    "a layer": ("ModelError", "Dense"),
    "a class": ("ModelError", "keras.Model"),
    "None": ("ModelError", "None"),
}
BATCHES = {
    "arrays, batch_size too small": ("DataError", "batch_size=8"),
    "arrays, batch_size too large": ("DataError", "batch_size=32"),
    "tf.data, too small": ("DataError", "12"),
    "tf.data, too large": ("DataError", "48"),
    "one batch, too large": ("DataError", "48"),
    "unknown length, too large": ("DataError", "25"),
    "PyDataset, too small": ("DataError", "12"),
    "PyDataset, too large": ("DataError", "48"),
    "generator, too large": ("DataError", "48"),
    "later batch too large": ("DataError", "30"),
}
LOOPS = {
    "inside of the scope": "after the `with` block",
    "inside of the scope, tf.function": "after the `with` block",
    "inside of the scope, XLA": "after the `with` block",
    "outside of the scope, XLA": "compile(jit_compile=True)",
    "optimizer outside": "Create the optimizer inside `with dp.scope():`",
    "optimizer outside, tf.function": "Create the optimizer inside `with dp.scope():`",
    "train_step under XLA, check=auto": "compile(jit_compile=True)",
    "train_step under XLA, check=off": "compile(jit_compile=True)",
}
RIGHT_BATCHES = (
    "only batch smaller",
    "last batch smaller",
    "evaluate, another batch",
    "validation of another batch",
    "train_on_batch, another batch",
    "predict, another batch",
)


@pytest.fixture(scope="module")
def found():
    calls = [(f"{CASES}:{name}", (NUM_REPLICAS,)) for name in ("arguments", "scopes", "batches", "loops")]
    results = run_together(calls)
    together = {}
    for (target, _), result in results.items():
        assert not isinstance(result, Failure), result
        together[target.partition(":")[2]] = result
    return together


def _check(found, error, part):
    kind, said = found
    assert kind == error, said
    assert part in said
    assert "\nReceived: " in said
    rule, _, rest = said.partition("\nReceived: ")
    assert rule.endswith(".")
    assert rest


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(found, name):
    _check(found["arguments"][name], *ARGUMENTS[name])


@pytest.mark.parametrize("name", SCOPES)
def test_scopes(found, name):
    _check(found["scopes"][name], *SCOPES[name])


def test_a_scope_that_was_ended():
    _check(run_case(f"{CASES}:lost_scope", args=(NUM_REPLICAS,)), "ModelError", "before `with dp.scope():`")


@pytest.mark.parametrize("name", BATCHES)
def test_batches(found, name):
    _check(found["batches"][name], *BATCHES[name])


@pytest.mark.parametrize("name", LOOPS)
def test_loops_by_hand(found, name):
    _check(found["loops"][name], "ModelError", LOOPS[name])


@pytest.mark.parametrize("name", ["outside of the scope", "outside of the scope, tf.function"])
def test_loops_by_hand_that_are_right(found, name):
    assert found["loops"][name] == ("no error", "'trained'")


@pytest.mark.parametrize("name", RIGHT_BATCHES)
def test_batches_that_are_right(found, name):
    kind, said = found["batches"][name]
    assert kind == "no error", said


@pytest.mark.parametrize("name", [name for name in BATCHES if "later" not in name])
def test_no_step_was_taken(found, name):
    assert found["batches"]["unchanged"][name]


def test_nothing_is_half_done(found):
    assert found["scopes"]["refused model"] == ("no error", "1")
    assert found["arguments"]["same replicas again"] == ("no error", "None")


def test_compile_outside_of_the_scope_is_taken_inside(found):
    assert found["scopes"]["compile again outside, by name"] == ("no error", "1")


def test_model_that_is_not_compiled_gets_the_error_of_keras(found):
    kind, said = found["scopes"]["not compiled"]
    assert kind == "ValueError"
    assert "compile()" in said


@pytest.mark.parametrize(
    "tf_config",
    [
        "worker 0 of 2",
        json.dumps({"cluster": {"worker": ["a:1", "b:1"]}}),
        json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}),
    ],
)
def test_malformed_cluster(tf_config):
    _check(run_case(f"{CASES}:cluster", env={"TF_CONFIG": tf_config}), "ClusterError", "TF_CONFIG")
