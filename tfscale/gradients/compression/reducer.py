"""Where does a compression keep its state, and what does it send?

The state lies in variables that have one value per replica. They belong neither to the model nor to its optimizer:
files do not hold them, and a run that is started again begins with the initial state, so that what was left out of its
last step is lost once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.errors import CommunicationError
from tfscale.exact.loss_scale import scaled, unscaled
from tfscale.gradients.compression.protocol import Compression, State
from tfscale.gradients.compression.riders import sum_with_riders
from tfscale.replicas.all_reduce import widened
from tfscale.replicas.packs import finishing_order, size_bytes

_log = logging.getLogger(__name__)


class Traffic(NamedTuple):
    """What one replica hands to the collectives in a step; a ring of N sends it 2 (N - 1) / N times."""

    gradient_bytes: int
    """Of the gradients as they are."""
    sent_bytes: int
    """Of what travels in their place."""


class GradientReducer:
    """Sums the gradients of one optimizer over all replicas with a compression.

    Args:
        compression: Which.
        strategy: Of the optimizer.
        variables: What the optimizer trains, or None while that is not known; a compression with a state needs it.
    """

    def __init__(self, compression: Compression, strategy: tf.distribute.Strategy, variables: Sequence[Any] | None):
        self.compression = compression
        self.traffic: Traffic | None = None
        self._shapes: list[tf.TensorShape] = []
        self._states: list[list[Any]] | None = None
        if variables is not None:
            self._make_states(strategy, variables)

    @property
    def is_ready(self) -> bool:
        """Whether the state has its variables."""
        return self._states is not None

    @property
    def state(self) -> list[Any]:
        """Its variables, each with a value of its own on every replica."""
        return [variable for variables in self._states or () for variable in variables]

    def reduce(
        self, gradients: Sequence[tf.Tensor], others: Sequence[Any], scale: Any
    ) -> tuple[list[tf.Tensor], list[Any]]:
        """Returns the sums of dense gradients, and those of other tensors; to be called by every replica.

        Args:
            gradients: Of this replica, in the order of the variables; some may be left out.
            others: What travels as it is, with whatever is sent first; an entry may be None.
            scale: What the gradients are multiplied by, against underflow.
        """
        # What is computed from the gradients shall be traced, and sent, in the order in which they are ready.
        order = finishing_order(gradients)
        variables = self._variables_of(gradients)
        if not any(variables):
            # Nothing is remembered, so nothing has to be without it.
            scale = 1.0
        given = [unscaled(gradients[index], scale) for index in order]
        states: list[State] = [tuple(variable.read_value() for variable in variables[index]) for index in order]
        sent_bytes, waiting, arrived = 0, [None if each is None else widened(each) for each in others], []

        def sum_over_replicas(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            nonlocal sent_bytes
            sent_bytes += sum(map(size_bytes, tensors))
            # Metrics are known before the gradients.
            exact, summed = sum_with_riders(waiting, tensors)
            arrived.extend(exact)
            waiting.clear()
            return summed

        reduction = self.compression.reduce(given, states, sum_over_replicas)
        if waiting:
            sum_over_replicas([])
        self._note(Traffic(sum(map(size_bytes, gradients)), sent_bytes))
        if any(variables):
            _update([variables[index] for index in order], reduction.states, reduction.sums)
        sums: list[Any] = [None] * len(gradients)
        for index, total in zip(order, reduction.sums, strict=True):
            sums[index] = scaled(total, scale)
        return sums, [
            None if each is None else tf.cast(each, own.dtype) for each, own in zip(arrived, others, strict=True)
        ]

    def _make_states(self, strategy: tf.distribute.Strategy, variables: Sequence[Any]) -> None:
        self._shapes = [tf.TensorShape(variable.shape) for variable in variables]
        specs = [tf.TensorSpec(variable.shape, variable.dtype) for variable in variables]
        with strategy.scope():
            self._states = [
                [_per_replica(value) for value in self.compression.initial_state(spec, index)]
                for index, spec in enumerate(specs)
            ]

    def _variables_of(self, gradients: Sequence[tf.Tensor]) -> list[list[Any]]:
        """The variables of each gradient's state: those of the next variable of its shape.

        Keras leaves gradients out that are None, the same ones in every step.
        """
        if self._states is None:
            if any(self.compression.initial_state(tf.TensorSpec(each.shape, each.dtype), 0) for each in gradients):
                raise _not_built(self.compression)
            return [[] for _ in gradients]
        left = iter(zip(self._shapes, self._states, strict=True))
        found = []
        for gradient in gradients:
            states = next((states for shape, states in left if shape == gradient.shape), None)
            if states is None:
                raise _not_built(self.compression)
            found.append(states)
        return found

    def _note(self, traffic: Traffic) -> None:
        if traffic != self.traffic:
            _log.info(
                "gradients: %.3f MB a step, sent as %.3f MB (%s, %s)",
                traffic.gradient_bytes / 1e6,
                traffic.sent_bytes / 1e6,
                self.compression.name,
                self.compression.exactness,
            )
        self.traffic = traffic


def _per_replica(value: tf.Tensor) -> tf.Variable:
    """A variable of which every replica has its own copy; assignments stay where they are made."""
    return tf.Variable(
        value,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )


def _update(variables: Sequence[Sequence[Any]], states: Sequence[State], sums: Sequence[tf.Tensor]) -> None:
    """Remembers `states`, unless the gradients overflowed: loss scaling skips such a step, and so does the memory.

    All replicas see the same sums, and so decide alike.
    """
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(total)) for total in sums])
    for own, values in zip(variables, states, strict=True):
        for variable, value in zip(own, values, strict=True):
            variable.assign(tf.where(finite, value, variable.read_value()))


def _not_built(compression: Compression) -> CommunicationError:
    return CommunicationError(
        f"{compression.name} remembers something of each gradient, and must know all variables before the first step.\n"
        "Received: gradients of an optimizer that was not built for them. "
        "Call `optimizer.build(variables)` under the strategy's scope before `fit`."
    )
