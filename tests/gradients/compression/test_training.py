"""Compressed gradients in `fit`: at the exactness that each compression states."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.training import contract_run
from tests.training.cases_compression import COMPRESSIONS, expected_kernel
from tests.training.linear_regression import FEATURES, OUTPUTS
from tests.training.test_contract_workers import IN_16_BITS as ELSEWHERE
from tests.training.together import Failure, run_together
from tfscale import CommunicationError, DataParallel, Network, PowerSGD, make_strategy, prepare

CASES = "tests.training.cases_compression"
KINDS = ("plain", "own step", "several steps", "accumulation", "loss scale")

# Of the kernel, whose elements are near 1: exact, and what 6 updates with 8 and 11 bits may add up to.
TOLERANCES = {"none": 1e-5, "bf16": 1e-2, "fp16": 2e-3, "bf16 with feedback": 1e-2}

# Three share the batches unevenly; what else the others are about, two show as well.
NUM_REPLICAS = {kind: 3 if kind == "plain" else 2 for kind in KINDS}
CALLS = {
    1: [("train", 1, "PowerSGD", "plain"), ("train", 1, "bf16", "plain")],
    2: [("refusals",), *(("train", 2, name, kind) for name in COMPRESSIONS for kind in KINDS if kind != "plain")],
    3: [("train", 3, name, "plain") for name in COMPRESSIONS],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("compression"))
    found = {"directory": directory}
    for calls in CALLS.values():
        named = [(f"{CASES}:{name}", (*args, directory) if "plain" in args else tuple(args)) for name, *args in calls]
        for call, result in zip(calls, run_together(named).values(), strict=True):
            found[call] = result
    return found


def result_of(results, *call):
    assert not isinstance(results[call], Failure), results[call]
    return results[call]


def trained(results, name, kind):
    return result_of(results, "train", NUM_REPLICAS[kind], name, kind)


@pytest.mark.parametrize("name", sorted(TOLERANCES))
@pytest.mark.parametrize("kind", ["plain", "own step", "several steps"])
def test_equals_one_replica_as_far_as_it_says(results, name, kind):
    found = trained(results, name, kind)
    difference = np.abs(found["kernel"] - expected_kernel()).max()
    assert difference <= TOLERANCES[name]
    # A compression that does nothing would pass.
    assert (difference > 1e-6) == (name != "none")


@pytest.mark.parametrize("kind", ["plain", "own step", "several steps"])
def test_power_sgd_follows_the_paper(results, kind):
    first_q = PowerSGD(1).initial_state(tf.TensorSpec((FEATURES, OUTPUTS)), 0)[1].numpy()
    expected = expected_kernel(NUM_REPLICAS[kind], first_q)
    np.testing.assert_allclose(trained(results, "PowerSGD", kind)["kernel"], expected, atol=1e-5)
    assert np.abs(expected - expected_kernel()).max() > 0.01


@pytest.mark.parametrize("name", sorted(COMPRESSIONS))
def test_metrics_stay_exact(results, name):
    # Nothing was updated before the first batch: all that differs is how the numbers travelled.
    [first, *_] = trained(results, name, "plain")["logs"]
    [exact, *_] = trained(results, "none", "plain")["logs"]
    assert first.keys() == {"loss", "mae"}
    assert first == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("name", sorted(COMPRESSIONS))
def test_accumulated_gradients(results, name):
    exact = trained(results, "none", "accumulation")["kernel"]
    found = trained(results, name, "accumulation")["kernel"]
    assert np.abs(found - exact).max() <= TOLERANCES.get(name, 0.5)
    assert np.any(found != 0)


@pytest.mark.parametrize("name", sorted(COMPRESSIONS))
def test_overflow_spoils_no_memory(results, name):
    found = trained(results, name, "loss scale")["kernel"]
    exact = trained(results, "none", "loss scale")["kernel"]
    assert np.all(np.isfinite(found))
    assert np.any(found != 0)
    # float16 overflows, and skips steps, where the others do not.
    if name != "fp16":
        assert np.abs(found - exact).max() <= TOLERANCES.get(name, 0.5)


def test_bytes_are_counted(results):
    size = FEATURES * OUTPUTS
    sent = {name: trained(results, name, "plain")["traffic"] for name in COMPRESSIONS}
    assert sent["none"] is None
    text = trained(results, "PowerSGD", "plain")["text"]
    assert text.endswith("Gradients: 0.000 MB a step, sent as 0.000 MB (PowerSGD(rank=1), approximate).")
    assert sent["bf16"] == sent["fp16"] == sent["bf16 with feedback"] == (4 * size, 2 * size)
    assert sent["PowerSGD"] == (4 * size, 4 * (FEATURES + OUTPUTS))


@pytest.mark.parametrize("name", ["bf16", "PowerSGD"])
def test_one_replica_sends_nothing(results, name):
    found = result_of(results, "train", 1, name, "plain")
    np.testing.assert_allclose(found["kernel"], expected_kernel(), atol=1e-6)
    assert found["traffic"] is None


def test_files_hold_nothing_of_it(results):
    plain = trained(results, "none", "plain")
    for name in COMPRESSIONS:
        found = trained(results, name, "plain")
        assert found["variables"] == plain["variables"]
        loaded = keras.models.load_model(f"{results['directory']}/{name}.keras")
        if name != "PowerSGD":
            np.testing.assert_allclose(loaded.get_weights()[0], plain["kernel"], atol=TOLERANCES[name])


def test_refusals(results):
    adascale, late = result_of(results, "refusals")
    assert "AdaScale measures the noise" in adascale
    assert "Received: " in adascale
    # Its step is rehearsed, which builds it.
    assert late == ""


@pytest.mark.parametrize("compression", ["bf8", "", None, 2, PowerSGD, ["bf16"]])
def test_unknown_compression(compression):
    with pytest.raises(CommunicationError, match=r"'none', 'bf16', 'fp16', or a tfscale(.|\n)*Received: compression="):
        DataParallel(global_batch=2, devices=1, network=Network(compression=compression))


@pytest.mark.parametrize("given", [{"communication": "ring"}, {"bytes_per_pack": 4096}, {"timeout_s": 5}])
def test_a_strategy_of_ones_own_has_its_own_communication(given):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with pytest.raises(
        CommunicationError, match=f"was made with(.|\n)*Received: {next(iter(given))}=.* for a Mirrored"
    ):
        DataParallel(global_batch=2, devices=strategy, network=Network(**given))
    with strategy.scope():
        model = keras.Sequential()
    with pytest.raises(CommunicationError, match="was made with"):
        prepare(model, strategy=strategy, network=Network(**given))


def test_a_strategy_that_was_made_with_the_same_network():
    network = Network("ring", 4096, timeout_s=5)
    strategy = make_strategy(devices=1, network=network)
    assert make_strategy(devices=1, communication="ring", bytes_per_pack=4096) is strategy
    same = DataParallel(global_batch=2, devices=strategy, network=network)
    # What is no part of a strategy may be another one.
    other = DataParallel(global_batch=2, devices=strategy, network=Network(compression="bf16"))
    assert same.strategy is other.strategy is strategy
    for given in ({"communication": "nccl"}, {"bytes_per_pack": 8192}):
        with pytest.raises(CommunicationError, match=f"was made with(.|\n)*Received: {next(iter(given))}="):
            DataParallel(global_batch=2, devices=strategy, network=Network(**given))


# Everything that is sent, in packs of a few numbers.
IN_PACKS = (
    "last batch uneven",
    "clipnorm",
    "accumulation",
    "steps_per_execution",
    "several inputs and outputs",
    "embedding, sparse gradients and clipnorm",
    "LossScaleOptimizer, overflow on one replica",
    "batch norm",
)


@pytest.fixture(scope="module")
def in_packs(tmp_path_factory, references):
    directory = tmp_path_factory.mktemp("packs")
    return contract_run.run_on_workers(IN_PACKS, 2, directory, references, bytes_per_pack=64)


@pytest.mark.parametrize("name", IN_PACKS)
def test_packs_are_exact(in_packs, name):
    contract_run.check_on_workers(in_packs, name)


# The others are in test_contract_workers.py.
IN_16_BITS = tuple(name for name in contract_run.load_cases(["compressed"]) if name not in ELSEWHERE)


@pytest.fixture(scope="module")
def in_16_bits(tmp_path_factory, references):
    directory = tmp_path_factory.mktemp("workers")
    return contract_run.run_on_workers(IN_16_BITS, 2, directory, references)


@pytest.mark.parametrize("name", IN_16_BITS)
def test_two_workers_equal_one_replica_but_for_rounding(in_16_bits, name):
    contract_run.check_on_workers(in_16_bits, name)
