"""There was not enough memory: on which worker, for how much, and what needs less?"""

from __future__ import annotations

import math
import re
from typing import Any

import tensorflow as tf

from tfscale.cluster.memory import read_memory_mib
from tfscale.errors import DeviceError
from tfscale.replicas.replica_batch import local_replicas, worker_addresses, worker_rank

_SHOWN_CHARACTERS = 300
_GIB = 1 << 30
# What TensorFlow says of a tensor, `shape[12,34] and type float on /job:.../device:GPU:0`; others of bytes.
_TENSOR = re.compile(r"shape\[([\d,]*)\] and type (\w+)(?: on (\S+))?")
_DEVICE = re.compile(r"device:(\w+:\d+)")
_IS_MEMORY = re.compile(r"\bOOM\b|alloc|memory", re.IGNORECASE)


def out_of_memory_error(error: Exception, strategy: tf.distribute.Strategy, name: str) -> DeviceError | None:
    """What to raise in the place of an error about memory; None where it is about something else.

    Args:
        error: Of TensorFlow, or a `MemoryError` of Python or NumPy.
        strategy: Of the model.
        name: Of the call, such as `"fit"`.
    """
    text = str(error)
    if isinstance(error, tf.errors.ResourceExhaustedError) and not _IS_MEMORY.search(text):
        return None
    rank, workers = worker_rank(strategy), worker_addresses(strategy)
    asked = _describe_tensor(text) or f"{_last_said(text)!r}"
    return DeviceError(
        "What a step needs must fit into the memory of every worker.\n"
        f"Received: worker {rank} ({workers[rank]}) asked in vain for {asked}, in `{name}`. {_describe_host()} "
        'Less is needed with `DataParallel(micro_batch="auto")`, which gives the same result, with a smaller '
        "`per_replica_batch`, or with more replicas for the same `global_batch`. `ErrorFeedback` and "
        "`double_buffering` each keep one more copy of the gradients; `compression` as `PowerSGD` sends less. "
        f"{_end(strategy)}"
    )


def _describe_tensor(text: str) -> str:
    tensor = _TENSOR.search(text)
    if tensor is None:
        return ""
    shape = [int(size) for size in tensor[1].split(",") if size]
    dtype = _dtype(tensor[2])
    size = "" if dtype is None else f", {math.prod(shape) * dtype.size / _GIB:.3g} GiB,"
    device = _DEVICE.search(tensor[3] or "")
    return f"a tensor of the shape {shape} and type {tensor[2]}{size} on {device[1] if device else 'its device'}"


def _dtype(name: str) -> Any:
    """TensorFlow's C++ names are those of C."""
    try:
        return tf.as_dtype({"float": "float32", "double": "float64", "half": "float16"}.get(name, name))
    except TypeError:
        return None


def _last_said(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if _IS_MEMORY.search(line)]
    return (lines[0] if lines else text)[:_SHOWN_CHARACTERS]


def _describe_host() -> str:
    used_mib, free_mib = read_memory_mib()
    if not free_mib:
        return ""
    return f"This process has {used_mib / 1024:.1f} GiB of the host's memory, and {free_mib / 1024:.1f} GiB are left."


def _end(strategy: tf.distribute.Strategy) -> str:
    if local_replicas(strategy).on_several_workers:
        return "Start all workers again."
    return "Where the next call fails too, end this process: TensorFlow keeps what it has of the memory."
