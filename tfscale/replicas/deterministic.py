"""Does TensorFlow in this process compute the same bits whenever it computes the same?

By itself it does not promise it: kernels may add up in any order, and on CPUs a sum is divided among as many threads as
there are. What is set here is the process's, and stays.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import BatchError, DeviceError
from tfscale.replicas.owners import Fact, PreparedModel

# Whether a model's runs are to be equal to the bit.
DETERMINISTIC = Fact[bool](PreparedModel, "deterministic")

_THREADS = 1
# The newest first; those of ARM are the last three.
_VECTORS = ("amx_tile", "avx512_bf16", "avx512_vnni", "avx512f", "avx2", "avx", "sve2", "sve", "asimd")
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
        Versions, the kind of the devices (of a CPU its instructions, by which kernels are chosen), and whether oneDNN's
        kernels are used.
    """
    kinds = _kinds_of_devices(strategy)
    details = [tf.config.experimental.get_device_details(each) for each in tf.config.list_physical_devices("GPU")]
    names = {str(each["device_name"]) for each in details if "device_name" in each}
    return {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "devices": ", ".join(sorted(names if "GPU" in kinds and names else map(_kind_of_processor, kinds))),
        "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "default"),
    }


def bits_of_run(model: keras.Model, strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """What is recorded with a run: whether its bits were asked for, and what they depend on besides.

    Args:
        model: Of the run.
        strategy: Its own.
    """
    return {"deterministic": DETERMINISTIC.of(model, False), **what_bits_depend_on(strategy)}


def _kinds_of_devices(strategy: tf.distribute.Strategy) -> set[str]:
    try:
        devices = strategy.extended.worker_devices
    except RuntimeError:
        # That of whoever has none names no devices: TensorFlow takes a GPU where there is one.
        return {"GPU" if tf.config.list_logical_devices("GPU") else "CPU"}
    return {tf.DeviceSpec.from_string(each).device_type for each in devices}


def _kind_of_processor(kind: str) -> str:
    if kind != "CPU":
        return kind
    try:
        known = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # Not on Linux.
        known = ""
    return f"CPU ({' '.join([platform.machine(), *vector_instructions(known)])})"


def vector_instructions(cpuinfo: str) -> list[str]:
    """The widest that a processor has, of those by which kernels of TensorFlow, Eigen and oneDNN are chosen.

    Args:
        cpuinfo: What Linux says of the processors.

    Example:
        >>> vector_instructions("flags : fpu sse4_2 avx avx2 fma")
        ['avx2']
    """
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    flags = set(found[1].split()) if found else set()
    widest = next((name for name in _VECTORS if name in flags), None)
    return [widest] if widest else []


def describe_deterministic(strategy: tf.distribute.Strategy) -> str:
    """One line for people."""
    facts = what_bits_depend_on(strategy)
    return (
        "Deterministic: the same bits on any number of devices, with TensorFlow {tensorflow}, Keras {keras}, {devices} "
        "and oneDNN as here ({onednn})."
    ).format(**facts)
