"""What runs on GPUs, in a process of its own. Without GPUs the same code takes logical CPUs, as a test of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.gpu.logical import LOGICAL_MB
from tests.training import contract_run
from tests.training.contract import Case, fitting
from tests.training.models import sgd
from tfscale.replicas.communication import choose_communication


def prepare_devices(num_logical: int) -> list[str]:
    """Makes the devices of this process: every GPU; of a single one, or of the CPU, `num_logical` parts.

    Args:
        num_logical: 1 leaves a single GPU whole.

    Returns:
        The names of the logical devices that become replicas.
    """
    # A product in TF32 has 10 bits: plain Keras on one GPU would differ from itself by more than the contract allows.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        tfscale.simulate_replicas(num_logical)
    elif len(gpus) == 1 and num_logical > 1:
        parts = [tf.config.LogicalDeviceConfiguration(memory_limit=LOGICAL_MB) for _ in range(num_logical)]
        tf.config.set_logical_device_configuration(gpus[0], parts)
    else:
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    kind = "GPU" if gpus else "CPU"
    return [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices(kind)]


def recurrent(layer: type) -> Case:
    """A recurrent layer, which cuDNN computes on GPUs, whose last batch leaves replicas without rows."""
    x = np.random.default_rng(0).normal(size=(25, 5, 4)).astype("float32")

    def build() -> keras.Model:
        return keras.Sequential([keras.Input((5, 4)), layer(6), keras.layers.Dense(1)])

    return fitting(
        build,
        lambda: {"optimizer": sgd(learning_rate=0.05), "loss": "mse"},
        lambda: {"x": x, "y": x.sum(axis=(1, 2))[:, None], "batch_size": 24},
    )


CASES = {
    "LSTM, last batch of one row": recurrent(keras.layers.LSTM),
    "GRU, last batch of one row": recurrent(keras.layers.GRU),
}


def run_contract(names: Sequence[str], num_logical: int, directory: str, references: str) -> None:
    """Runs cases of the contract, and of `CASES`."""
    prepare_devices(num_logical)
    cases = {**contract_run.load_cases(), **CASES}
    contract_run.run_in_order(names, cases, tfscale.make_strategy(), Path(directory), Path(references))


def communication(num_logical: int) -> dict[str, Any]:
    """Which communication is chosen, whether a sum comes about, and what NCCL's own answer would be."""
    names = prepare_devices(num_logical)
    kinds = [name.split(":")[0] for name in names]
    shares = len(names) > max(1, len(tf.config.list_physical_devices(kinds[0])))
    choice = choose_communication(kinds, virtual_gpus=shares)
    strategy = tfscale.make_strategy()

    @tf.function
    def add_up() -> Any:
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.ones(3)))

    sums = [value.numpy().tolist() for value in strategy.experimental_local_results(add_up())]
    found = {"devices": names, "implementation": choice.implementation, "reason": choice.reason, "sums": sums}
    try:
        tfscale.make_strategy(communication="nccl")
        found["nccl"] = "taken"
    except tfscale.DeviceError as error:
        found["nccl"] = str(error)
    return found


def weights_after(num_logical: int, bytes_per_pack: int, deterministic: bool, jit_compile: bool) -> list[np.ndarray]:
    """The weights of a small model after two epochs whose last batch leaves replicas without rows."""
    prepare_devices(num_logical)
    if deterministic:
        tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(1)
    network = tfscale.Network(bytes_per_pack=bytes_per_pack)
    dp = tfscale.DataParallel(global_batch=24, network=network)
    x = np.random.default_rng(0).normal(size=(49, 8)).astype("float32")
    with dp.scope():
        layers = [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)]
        model = dp.prepare(keras.Sequential(layers))
        model.compile(sgd(learning_rate=0.05), "mse", jit_compile=jit_compile)
    # `dp.dataset`: each device gets its rows ahead of time, through TensorFlow's MultiDeviceIterator on GPUs.
    model.fit(dp.dataset((x, x.sum(axis=1, keepdims=True))), epochs=2, verbose=0)
    return model.get_weights()
