"""How do gradients travel from replica to replica?

As they are or compressed, and in their own step or during the next one.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.errors import CommunicationError
from tfscale.framework.optimizers import trained_variables
from tfscale.gradients.adascale import AdaScaleSGD
from tfscale.gradients.compression.choice import choose_compression
from tfscale.gradients.compression.protocol import Compression
from tfscale.gradients.compression.reducer import GradientReducer, Traffic
from tfscale.gradients.double_buffer import DoubleBuffer, buffer_of, set_buffer
from tfscale.gradients.network import Network
from tfscale.gradients.noise import note_total
from tfscale.gradients.route import GradientRoute
from tfscale.gradients.updaters import accumulates, innermost
from tfscale.replicas.all_reduce import all_reduce_sum
from tfscale.replicas.link import LINK
from tfscale.replicas.owners import Fact
from tfscale.replicas.packs import is_dense, size_bytes

_log = logging.getLogger(__name__)


class Sending(NamedTuple):
    """The way that was chosen."""

    compression: Compression | None = None
    """None for as they are."""
    double_buffering: bool = False
    """Whether during the next step."""

    def names(self) -> dict[str, Any]:
        """What all workers must agree on."""
        named = self.compression.name if self.compression else "none"
        return {"compression": named, "double_buffering": self.double_buffering}

    def describe(self, optimizers: Iterable[keras.optimizers.Optimizer], num_replicas: int) -> list[str]:
        """Lines about what it costs: the bytes of each optimizer of which a step was traced, the age of gradients."""
        found = [traffic for traffic in map(traffic_of, optimizers) if traffic is not None]
        names = f"{self.compression.name}, {self.compression.exactness}" if self.compression else ""
        lines = [
            f"Gradients: {each.gradient_bytes / 1e6:.3f} MB a step, sent as {each.sent_bytes / 1e6:.3f} MB ({names})."
            for each in found
        ]
        if self.double_buffering and num_replicas == 1:
            lines.append("Double buffering: 1 replica sends nothing; each step applies its own gradients (exact).")
        elif self.double_buffering:
            lines.append("Double buffering: each step applies the gradients of the step before (approximate).")
        return lines


def choose_sending(network: Network) -> Sending:
    """Returns the way that a network asks for.

    Example:
        >>> choose_sending(Network(double_buffering=True))
        Sending(compression=None, double_buffering=True)
    """
    return Sending(choose_compression(network.compression), network.double_buffering)


# How gradients travel, unless as they are.
REDUCER = Fact[GradientReducer](GradientRoute, "compression", lambda reducer: reducer.compression.name)


def send_gradients(optimizer: keras.optimizers.Optimizer, sending: Sending, strategy: tf.distribute.Strategy) -> None:
    """Lets the gradients of `optimizer` travel in this way from the next trace on. Idempotent.

    Args:
        optimizer: Of a prepared model.
        sending: How.
        strategy: Under which the optimizer was made. One replica sends nothing.

    Raises:
        CommunicationError: When AdaScale would have to measure approximate gradients, or old ones be accumulated.
    """
    _compress(innermost(optimizer), sending.compression, strategy)
    if not sending.double_buffering:
        set_buffer(optimizer, None)
        return
    _refuse_double_buffering(innermost(optimizer))
    existing = buffer_of(optimizer)
    if existing is not None and existing.is_ready:
        existing.forget_traces()
        return
    if strategy.num_replicas_in_sync == 1:
        _log.info("double buffering: one replica sends nothing, so there is nothing to overlap; steps are exact")
    # By a weak reference, because the buffer lives as long as the optimizer.
    reduce = functools.partial(_sum_dense, weakref.ref(innermost(optimizer)))
    trained = trained_variables(innermost(optimizer))
    set_buffer(optimizer, DoubleBuffer(strategy, trained, reduce=reduce))


def _compress(
    updater: keras.optimizers.Optimizer, compression: Compression | None, strategy: tf.distribute.Strategy
) -> None:
    if compression is None or strategy.num_replicas_in_sync == 1:
        REDUCER.forget(updater)
        return
    if isinstance(updater, AdaScaleSGD) and compression.exactness == "approximate":
        raise CommunicationError(
            "AdaScale measures the noise in the gradients, and would take what a compression leaves out for noise.\n"
            f'Received: compression {compression.name}. Use "none", "bf16" or "fp16", or another rule.'
        )
    existing = REDUCER.of(updater)
    if existing is None or existing.compression is not compression or not existing.is_ready:
        REDUCER.set(updater, GradientReducer(compression, strategy, trained_variables(updater)))


def _refuse_double_buffering(updater: keras.optimizers.Optimizer) -> None:
    """On any number of replicas, so that a script that runs on one does not fail on more."""
    if isinstance(updater, AdaScaleSGD):
        raise CommunicationError(
            "AdaScale measures each step's own gradients, and `double_buffering` applies those of the step before.\n"
            "Received: double_buffering=True with an AdaScaleSGD. Leave it out, or use another rule."
        )
    if accumulates(updater):
        raise CommunicationError(
            "Accumulated gradients are sent once per update, and `double_buffering` would make them a whole update "
            "old.\n"
            "Received: double_buffering=True with gradient_accumulation_steps="
            f"{updater.gradient_accumulation_steps}. Leave one of them out."
        )


def traffic_of(optimizer: keras.optimizers.Optimizer) -> Traffic | None:
    """What the compressed gradients of `optimizer` took in the step traced last; None without a compression."""
    reducer = REDUCER.of(optimizer)
    return None if reducer is None else reducer.traffic


def reduction_time(model: keras.Model) -> float | None:
    """Seconds that the reduction of a step's gradients takes by itself, as the link was measured; None where none was.

    Args:
        model: Built and compiled with an optimizer.
    """
    found = LINK.of(model.distribute_strategy)
    if found is None:
        return None
    traffic = traffic_of(innermost(model.optimizer))
    if traffic is not None:
        return found.link.all_reduce_s(traffic.sent_bytes)
    return found.link.all_reduce_s(sum(size_bytes(each.value) for each in model.trainable_variables))


def compression_of(optimizer: keras.optimizers.Optimizer) -> Compression | None:
    """What the gradients of `optimizer` are compressed with, if they are."""
    reducer = REDUCER.of(optimizer)
    return None if reducer is None else reducer.compression


def compression_state(optimizer: keras.optimizers.Optimizer) -> list[tf.Variable]:
    """What a compression remembers of the gradients of `optimizer`."""
    reducer = REDUCER.of(optimizer)
    return [] if reducer is None else reducer.state


def sum_over_replicas(
    updater: keras.optimizers.Optimizer, gradients: Sequence[Any], others: Sequence[Any], scale: Any
) -> tuple[list[Any], list[Any]]:
    """Sums the gradients of one optimizer, and whatever else travels with them.

    With a compression, all but the dense gradients stays exact.

    Args:
        updater: That will apply the gradients.
        gradients: Of this replica.
        others: Tensors to be summed too.
        scale: What the gradients are multiplied by, against underflow.
    """
    reducer, count = REDUCER.of(updater), len(gradients)
    if reducer is None:
        reduced = all_reduce_sum([*gradients, *others])
        return reduced[:count], reduced[count:]
    whole = [None if is_dense(gradient) else gradient for gradient in gradients]
    sums_of_dense, reduced = reducer.reduce(list(filter(is_dense, gradients)), [*whole, *others], scale)
    compressed = iter(sums_of_dense)
    sums = [
        next(compressed) if is_dense(gradient) else each
        for gradient, each in zip(gradients, reduced[:count], strict=True)
    ]
    return sums, reduced[count:]


def _sum_dense(
    updater: weakref.ReferenceType[keras.optimizers.Optimizer], gradients: list[tf.Tensor], scale: Any
) -> list[tf.Tensor]:
    held = updater()
    if held is None:
        return []
    sums, _ = sum_over_replicas(held, gradients, [], scale)
    # Of the step before, as what its replicas have noted of their own.
    note_total(held, sums, scale)
    return sums
