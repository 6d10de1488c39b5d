"""What runs on GPUs, in a process of its own. Without GPUs the same code takes logical CPUs, as a test of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.gpu.devices import cut_devices, prepare_devices
from tests.training import contract_run
from tests.training.contract import Case, fitting
from tests.training.models import sgd
from tests.training.step import cases_logical_replicas
from tfscale.replicas.all_reduce import sum_as_they_are
from tfscale.replicas.communication import choose_communication


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


SUMMED = ("float16", "bfloat16", "float32", "float64", "int8", "uint16", "int32", "int64")


def sums(num_logical: int) -> dict[str, Any]:
    """What replicas add up of ones of each type, and what is said of bfloat16 on the wire."""
    prepare_devices(num_logical)
    strategy = tfscale.make_strategy()

    @tf.function
    def add_up() -> Any:
        return strategy.run(lambda: sum_as_they_are([tf.ones(3, dtype) for dtype in SUMMED]))

    totals = [strategy.experimental_local_results(total)[0] for total in add_up()]
    found: dict[str, Any] = {total.dtype.name: tf.cast(total, tf.float32).numpy().tolist() for total in totals}
    dp = tfscale.DataParallel(global_batch=8, network=tfscale.Network(compression="bf16"))
    try:
        with dp.scope():
            dp.prepare(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
        found["bf16"] = "taken"
    except tfscale.CommunicationError as error:
        found["bf16"] = str(error).splitlines()[1].partition(" See ")[0]
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


def digests(num_logical: int, names: Sequence[str] = cases_logical_replicas.TO_THE_BIT) -> dict[str, Any]:
    """Of runs of logical replicas with `deterministic=True`; what raises is told, and ends them."""
    cut_devices(num_logical, is_shared=True)
    return cases_logical_replicas.digests(num_logical, names)


class Mixed(keras.layers.Layer):
    """A layer that tfscale does not know: sums of a thousand products."""

    def build(self, input_shape: Any) -> None:
        self.kernel = self.add_weight(shape=(input_shape[-1], 512), name="kernel")

    def call(self, inputs: Any) -> Any:
        return keras.ops.tanh(keras.ops.matmul(inputs, self.kernel))


def checked(num_logical: int, tf32: bool, check: str) -> list[float]:
    """The losses of a model with layers of one's own, whose first step is looked at."""
    cut_devices(num_logical, tf32=tf32)
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).normal(size=(250, 1000)).astype("float32")
    dp = tfscale.DataParallel(global_batch=125)
    with dp.scope():
        layers = [keras.Input((1000,)), Mixed(), Mixed(), keras.layers.Dense(10)]
        model = dp.prepare(keras.Sequential(layers), check=check)
        model.compile(keras.optimizers.Adam(0.001), "mse")
    fitted = model.fit(x, x[:, :10], batch_size=125, epochs=2, verbose=0)
    return [float(loss) for loss in fitted.history["loss"]]
