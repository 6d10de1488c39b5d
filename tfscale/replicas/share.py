"""Which part of the global batch does the replica at hand hold?

Everything exact rests on one convention: *inside a replica, a loss is what the one-replica script would compute from
this replica's rows alone; the loss of the global batch is the sum over replicas of `weight_i * loss_i`*, with
`weight_i = n_i / n`. A mean over examples then needs nothing more. A term with another denominator is corrected where
it arises (`losses.py`) so that the convention holds for it as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.framework.graphs import has_loop_between
from tfscale.replicas.own_functions import traced_with_step
from tfscale.step_context import Slot


class Denominators:
    """What the loss terms of one pass divide by, in the order in which they are computed.

    Args:
        totals: Over all replicas and micro-steps; None to find out what this pass has to add to them.
    """

    def __init__(self, totals: Sequence[tf.Tensor] | None = None):
        self.found: list[tf.Tensor] = []
        """This pass's own."""
        self._totals = totals

    def again(self) -> Denominators:
        """The same, for another pass over a part."""
        return Denominators(self._totals)

    def total_of(self, own: tf.Tensor) -> tf.Tensor:
        """The total that `own` is a part of."""
        self.found.append(own)
        return own if self._totals is None else self._totals[len(self.found) - 1]


class Share(NamedTuple):
    """The rows of one replica among those of the global batch. Scalars of the traced step."""

    num_examples: tf.Tensor
    """n_i, float32; may be 0."""
    global_examples: tf.Tensor
    """n, float32."""
    weight: tf.Tensor
    """n_i / n, float64; to be cast where it is used."""
    first_row: tf.Tensor
    """Row of the global batch at which this replica's rows begin, int64."""
    num_replicas: int
    weights_gradients: bool = False
    """Whether the gradients of this step are still those of the unweighted loss, as in a user's `train_step`."""

    is_part: bool = False
    """Whether these are the rows of one micro-step, and not all of the replica's."""
    rows_known: bool = True
    """False for a part of known shape of rows whose number was not known while tracing."""
    logged_per_example: Any = 1.0
    """What each example weighs in the logged loss, float32: other than 1 where the first input is a side input."""
    logical: Any = None
    """The logical replica whose rows they are, a number or an integer tensor: by it, random numbers are drawn."""
    micro_step: Any = 0
    """Which micro-step of the replica's rows they are of, a number or an integer tensor: as `logical`."""
    static_sizes: tuple[int, ...] | None = None
    """How many rows replicas have, where that is known as the step is traced, or it runs eagerly; none where only a
    replica's own number is known, None where none is. The same on all of them."""
    denominators: Denominators | None = None
    """Sums over replicas and micro-steps that are known before the step; None where each is asked for on the way."""

    @property
    def is_whole(self) -> bool:
        """Whether the rows are those of the global batch, so that a loss of them needs no correction."""
        return self.num_replicas == 1 and not self.is_part

    def is_counted(self, dtype: tf.DType) -> tf.Tensor:
        """1 when the replica has rows of its own, 0 when it computes on a stand-in."""
        return tf.cast(self.num_examples > 0, dtype)

    def as_numbers(self) -> tuple[int | float | bool, ...]:
        """Those of an eager step."""
        known = self.num_examples, self.global_examples, self.weight, self.first_row
        logical = -1 if self.logical is None else int(self.logical)
        return (*map(float, known), self.num_replicas, self.weights_gradients, self.is_part, self.rows_known, logical)


_SHARE = Slot[Share | None]("share")
_GRAPH = Slot[Any]("graph_of_share")
_STEP_GRAPH = Slot[Any]("graph_of_step")
_IS_EAGER = Slot[bool]("is_eager", bool)


@contextlib.contextmanager
def in_share(share: Share | None) -> Iterator[None]:
    """Makes `share`, or none, the current one while this thread traces or runs a replica's step."""
    traced = contextlib.nullcontext() if share is None else traced_with_step(share.as_numbers)
    graph = _STEP_GRAPH.value if is_in_step() else tf.compat.v1.get_default_graph()
    with (
        _SHARE.carrying(share),
        at_this_graph(),
        _STEP_GRAPH.carrying(graph),
        _IS_EAGER.carrying(tf.executing_eagerly()),
        traced,
    ):
        yield


def at_this_graph() -> contextlib.AbstractContextManager[None]:
    """Says that what is traced meanwhile begins in the graph at hand, be it part of a loop itself."""
    return _GRAPH.carrying(tf.compat.v1.get_default_graph())


def step_graph() -> Any:
    """The graph in which the step of this thread begins. Where a call takes several steps it is part of a loop."""
    return _STEP_GRAPH.value


def is_in_own_loop() -> bool:
    """Whether this thread traces a loop of the step's own, such as one over rows."""
    return has_loop_between(tf.compat.v1.get_default_graph(), _GRAPH.value)


def current_share() -> Share | None:
    """The share of the replica being traced or run by this thread, or None outside of a step."""
    return _SHARE.value


def num_replicas() -> int:
    """Among how many replicas the step at hand is divided; 1 where each computes all rows.

    Whoever else asks TensorFlow inside of a step is told that there is one (`framework/replicas.py`).
    """
    share = current_share()
    return int(tf.distribute.get_strategy().num_replicas_in_sync) if share is None else share.num_replicas


def is_in_step() -> bool:
    """Whether this thread traces or runs a step of a prepared model."""
    return _SHARE.value is not None


def is_in_eager_step() -> bool:
    """Whether this thread runs a step of a prepared model, and does not trace it."""
    return is_in_step() and _IS_EAGER.value
