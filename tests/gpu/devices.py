"""The devices of a process that a test of GPUs runs in."""

from __future__ import annotations

import tensorflow as tf

import tfscale
from tests.gpu.logical import LOGICAL_MB
from tfscale.data import dataset
from tfscale.replicas import replica_batch


def cut_devices(num_logical: int, *, tf32: bool = False, is_shared: bool = False) -> str:
    """Says which devices TensorFlow makes when it starts: every GPU; of a single one, or of the CPU, parts.

    Args:
        num_logical: How many parts; 1 leaves a single GPU whole.
        tf32: Whether GPUs multiply float32 in TF32, as TensorFlow has it by default. A product has 10 bits then: plain
            Keras on one GPU differs from itself by more than the contract allows.
        is_shared: Whether other processes take parts of a single GPU at the same time: then 1 is a part, too.

    Returns:
        The kind of those that become replicas.
    """
    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        tfscale.simulate_replicas(num_logical)
    elif len(gpus) == 1 and (is_shared or num_logical > 1):
        parts = [tf.config.LogicalDeviceConfiguration(memory_limit=LOGICAL_MB) for _ in range(num_logical)]
        tf.config.set_logical_device_configuration(gpus[0], parts)
    else:
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    return "GPU" if gpus else "CPU"


def prepare_devices(num_logical: int) -> list[str]:
    """`cut_devices`, and starts TensorFlow; returns the names of the logical devices that become replicas."""
    kind = cut_devices(num_logical)
    return [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices(kind)]


def take_rows_as_on_gpus() -> None:
    """Has TensorFlow copy each replica's rows to it ahead of time, in this process, whatever its devices are."""
    for module in (replica_batch, dataset):
        module.on_gpus = lambda strategy: True  # type: ignore[attr-defined]
