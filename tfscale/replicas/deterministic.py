"""Does TensorFlow in this process compute the same bits whenever it computes the same?

By itself it does not promise it: kernels may add up in any order, and on CPUs a sum is divided among as many threads as
there are. What is set here is the process's, and stays.
"""

from __future__ import annotations

import os
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import BatchError, DeviceError

_THREADS = 1
_WAY_OUT = (
    "Make `DataParallel` before anything else of TensorFlow is used, or call "
    "tf.config.threading.set_intra_op_parallelism_threads(1) at the top of the script."
)


def begin_deterministic(deterministic: Any, **defining: int | None) -> None:
    """Checks `deterministic` of `DataParallel` and `prepare`, and makes the process so if it was asked for.

    Args:
        deterministic: As given.
        defining: What the run is defined by, as given beside it.

    Raises:
        BatchError: When it is no bool, or what defines the run is missing.
        DeviceError: When TensorFlow has started with several threads, which cannot be taken back.
    """
    if not isinstance(deterministic, bool):
        raise BatchError(
            f"`deterministic` must be True or False.\nReceived: deterministic={deterministic!r}. Give one of these."
        )
    if not deterministic:
        return
    missing = [name for name, value in defining.items() if value is None]
    if missing:
        received = ", ".join(f"{name}={value}" for name, value in defining.items())
        raise BatchError(
            "`deterministic=True` needs what defines a run to the bit: global batch, `logical_replicas` and `seed`.\n"
            f"Received: {received}. Give {' and '.join(missing)}: of a run that is to go on any number of devices "
            "up to 8, logical_replicas=8."
        )
    _make_deterministic()


def _make_deterministic() -> None:
    """Has TensorFlow use kernels that add up in one order, and one thread within each operation on a CPU."""
    before = tf.config.threading.get_intra_op_parallelism_threads()
    if before != _THREADS:
        try:
            tf.config.threading.set_intra_op_parallelism_threads(_THREADS)
        except RuntimeError as error:
            raise DeviceError(
                "`deterministic=True` needs one thread within each operation on a CPU: a sum that is divided among "
                f"threads depends on how many there are, and TensorFlow runs already.\nReceived: "
                f"{before or 'as many as cores'}. {_WAY_OUT}"
            ) from error
    tf.config.experimental.enable_op_determinism()


def what_bits_depend_on(strategy: tf.distribute.Strategy) -> dict[str, str]:
    """What runs must have in common, besides the batch, logical replicas and seed, for their bits to be equal.

    Returns:
        Versions, the kind of the devices, and whether oneDNN's kernels are used.
    """
    kinds = {tf.DeviceSpec.from_string(each).device_type for each in strategy.extended.worker_devices}
    details = [tf.config.experimental.get_device_details(each) for each in tf.config.list_physical_devices("GPU")]
    names = {str(each["device_name"]) for each in details if "device_name" in each}
    return {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "devices": ", ".join(sorted(names if "GPU" in kinds and names else kinds)),
        "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "default"),
    }


def describe_deterministic(strategy: tf.distribute.Strategy) -> str:
    """One line for people."""
    facts = what_bits_depend_on(strategy)
    return (
        "Deterministic: the same bits on any number of devices, with TensorFlow {tensorflow}, Keras {keras}, {devices} "
        "and oneDNN as here ({onednn})."
    ).format(**facts)
