"""What does a step make that is not there yet?

A step of the user's own makes layers, optimizers' slots and metrics as it goes, where Keras's own builds them before.
It is traced once as on one device, and never run: afterwards everything exists, on all replicas. What cannot be traced,
as it asks for numbers (`loss.numpy()`), is run once, and its state is put back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfscale.exact.randomness import draw_as_first_here
from tfscale.gradients.double_buffer import at_once
from tfscale.replicas.lone_replica import LoneReplica
from tfscale.replicas.made import made_under
from tfscale.replicas.outside import making_variables_outside
from tfscale.replicas.own_share import as_lone_replica, make_lone_share
from tfscale.replicas.share import in_share
from tfscale.replicas.undisturbed import undisturbed
from tfscale.training.step.state import State


def rehearse(strategy: tf.distribute.Strategy, step: Callable[[Any], Any], data_spec: Any) -> None:
    """Traces `step` for data of these specs, so that whatever it makes is made under the scope of `strategy`.

    Args:
        strategy: Where variables are made.
        step: Takes a batch.
        data_spec: Structure of specs of a batch; None where a part is missing.
    """

    def alone(data: Any) -> None:
        draw_as_first_here(strategy)
        # As one replica that computes everything by itself: nothing is exchanged, not even in what is never run.
        lone = in_share(make_lone_share(tf.constant(1)))
        with making_variables_outside(strategy), LoneReplica(strategy), lone:
            step(data)

    with strategy.scope():
        traced_for(data_spec, alone)


def traced_for(data_spec: Any, step: Callable[[Any], None]) -> Any:
    """`step` as it is traced for data of these specs, a concrete function of those parts that are there.

    Args:
        data_spec: Structure of specs of a batch; None where a part is missing.
        step: Takes a batch.
    """
    leaves = tf.nest.flatten(data_spec)
    present = [index for index, leaf in enumerate(leaves) if leaf is not None]

    def of_parts(*values: Any) -> None:
        filled: list[Any] = [None] * len(leaves)
        for index, value in zip(present, values, strict=True):
            filled[index] = value
        step(tf.nest.pack_sequence_as(data_spec, filled))

    return tf.function(of_parts, autograph=False).get_concrete_function(*(leaves[index] for index in present))


def rehearse_eagerly(strategy: tf.distribute.Strategy, step: Callable[[Any], Any], rows: Any) -> None:
    """Runs `step` on some rows, so that whatever it makes is made under the scope of `strategy`, and changes nothing.

    Args:
        strategy: Where variables are made.
        step: Takes a batch.
        rows: A batch.
    """
    state, begins = State(strategy), list[tuple[tf.Variable, tf.Tensor]]()
    state.add(made_under(strategy).variables)
    try:
        with state.put_back(), making_variables_outside(strategy, begins), as_lone_replica(strategy), at_once():
            step(rows)
    finally:
        with undisturbed():
            for copy, value in begins:
                copy.assign(value)
