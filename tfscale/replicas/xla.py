"""Which part of a step does XLA compile?

What a replica computes by itself: the forward and backward pass. Collectives stay outside, because XLA cannot run them
on every platform, and so does the update. A pass that must communicate half-way (synchronised BatchNormalization, a
loss with a denominator of its own) is compiled in pieces, from one exchange to the next: TensorFlow finds them among
operations that are marked for XLA. Where a process has several CPUs, XLA compiles nothing of such a pass.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.framework.graphs import is_traced_for_xla
from tfscale.replicas.marks import mark_inside
from tfscale.step_context import Flag

_log = logging.getLogger(__name__)
_COMPILING = Flag("xla_compiles")
_WITHOUT = Flag("without_xla")

_EXCHANGE = "its replicas exchange something half-way (synchronised BatchNormalization, a loss with weights of its own)"
_OF_ONES_OWN = "`tf.function(jit_compile=True)`"
_WAY_OUT = "Take `jit_compile=True` out of it; `compile(jit_compile=True)` has XLA compile what `fit` runs."


class CollectiveInsideXlaError(Exception):
    """A collective was about to be traced into a function that XLA compiles."""


def refuse_collectives_inside_xla() -> None:
    """Raises `CollectiveInsideXlaError` when called while tracing for XLA.

    Raises:
        ModelError: When it was not tfscale that has XLA compile it.
    """
    if _COMPILING.is_raised:
        raise CollectiveInsideXlaError
    if is_traced_for_xla():
        raise ModelError(
            "What replicas send one another cannot be in a function that XLA compiles as a whole.\n"
            f"Received: {_OF_ONES_OWN} around a step. {_WAY_OUT}"
        )


def refuse_updates_inside_xla(strategy: tf.distribute.Strategy, variable: Any) -> None:
    """Refuses to update a variable of several devices in a function that XLA compiles for one.

    Raises:
        ModelError: While such a function is traced.
    """
    if len(strategy.experimental_local_results(variable)) > 1 and is_traced_for_xla():
        raise ModelError(
            "A function that XLA compiles runs on one device, and cannot update the copies on others.\n"
            f"Received: {_OF_ONES_OWN} around an update of {variable.name!r}. {_WAY_OUT}"
        )


def without_xla() -> contextlib.AbstractContextManager[None]:
    """Has this thread trace what it would compile as part of the graph around it, in which all of it can be seen."""
    return _WITHOUT.raised()


def run_compiled(model: keras.Model, function: Callable[[], Any]) -> Any:
    """Returns `function()`, compiled by XLA when the model was compiled with `jit_compile=True`.

    As one function, or in pieces where it communicates. The result is the same to float rounding.

    Args:
        model: Decides by its `jit_compile`.
        function: Computes tensors of this replica alone. Tensors and variables around it may be used freely.
    """
    if not model.jit_compile or tf.executing_eagerly() or _WITHOUT.is_raised:
        return function()
    try:
        with _COMPILING.raised():
            compiled = tf.function(function, jit_compile=True, autograph=False).get_concrete_function()
        results = compiled()
        # What a sparse gradient is made of says how those of the replicas are brought together.
        mark_inside(results, compiled.structured_outputs)
        return results
    except CollectiveInsideXlaError:
        if not takes_pieces(tf.distribute.get_strategy().extended.worker_devices):
            _log.info("XLA compiles nothing of model %r: %s, and this process has several CPUs", model.name, _EXCHANGE)
            return function()
        _log.info("XLA compiles model %r in pieces: %s", model.name, _EXCHANGE)
        with tf.xla.experimental.jit_scope():
            return function()


def takes_pieces(devices: Sequence[str]) -> bool:
    """Whether XLA can compile pieces of what the replicas of a process do.

    TensorFlow 2.21 puts numbers that a piece needs (the sizes of a `Slice`) on the first CPU. Where the piece is on
    another one, that is an `InternalError: Multiple CPU devices`, for some models.

    Args:
        devices: Those of this process's replicas.

    Example:
        >>> [takes_pieces(each) for each in (["CPU:0"], ["CPU:0", "CPU:1"], ["GPU:0", "GPU:1"])]
        [True, False, True]
    """
    return sum("CPU" in each for each in devices) < 2


def would_compile(layers: Iterable[keras.layers.Layer], device_types: Iterable[str]) -> bool:
    """What `jit_compile="auto"` means: as Keras decides for one device.

    Args:
        layers: All layers of the model.
        device_types: Types of the physical devices of this process.

    Returns:
        True when there is anything but CPUs and every layer supports XLA.
    """
    return any(kind != "CPU" for kind in device_types) and all(layer.supports_jit for layer in layers)
