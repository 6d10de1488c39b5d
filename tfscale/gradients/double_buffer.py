"""How do gradients travel during the step after theirs?

Each replica keeps the gradients of its step. In the next step it sends them before the forward pass begins, so that
they travel while it computes, and their sum makes the update at the end. So every update is made with gradients that
are one step old: with g(w) the gradient at the weights w, and v what the optimizer makes of it,

`w_{t+1} = w_t - v(g(w_{t-1}))`.

The first step has nothing to send, and makes no update. `flush` makes up for it where an epoch ends.

What old gradients cost depends on the model and its rate. Published: ResNet-50 on CIFAR-10 came to 89.3 % in place of
93.2 %, VGG-16 to 90.6 % in place of 92.5 % (Chen et al. 2022, "SAPipe: Staleness-Aware Pipeline for Data Parallel DNN
Training", NeurIPS, the row PipeSGD of their repository's table). Li et al. 2018, "Pipe-SGD", arXiv:1811.03619, call one
step of delay the best of both worlds for time to accuracy. ChainerMN's documentation of its `double_buffering`, which
is the same algorithm without a flush, warns of "cases where accuracy is affected".
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfscale.errors import CommunicationError
from tfscale.exact.loss_scale import scaled, unscaled
from tfscale.framework.replicas import write_locally
from tfscale.gradients.route import GradientRoute
from tfscale.gradients.updaters import innermost
from tfscale.replicas.all_reduce import all_are_ready, widened
from tfscale.replicas.owners import Fact
from tfscale.step_context import Flag, Slot

_log = logging.getLogger(__name__)

Reduce = Callable[[list[tf.Tensor], Any], list[tf.Tensor]]
"""Takes dense gradients of all trained variables, and what they are multiplied by; returns their sums."""
Update = Callable[[list[Any], Sequence[keras.Variable]], None]
"""Applies gradients of the global batch."""


class Sent(NamedTuple):
    """What is on its way in a step."""

    is_there: tf.Tensor
    """False in a step before which no gradients were kept."""
    sums: list[tf.Tensor]
    """Of all trained variables, not multiplied by anything; zeros where there is nothing."""
    graph: Any
    """Where they were sent: what a branch or a loop sees of it, it would use as often as it runs."""


class DoubleBuffer:
    """The gradients of one optimizer that wait to be sent.

    They lie in variables with a value of its own on each replica, which belong to neither the model nor its optimizer:
    files do not hold them, and `Recovery` saves their sum.

    Args:
        strategy: Of the optimizer.
        trained: What the optimizer trains, in its order; None while that is not known.
        reduce: How gradients travel.
    """

    def __init__(self, strategy: tf.distribute.Strategy, trained: Sequence[keras.Variable] | None, *, reduce: Reduce):
        self._strategy = strategy
        self.trained = trained
        """What the optimizer trains."""
        self._reduce = reduce
        self._waiting: list[keras.Variable] = []
        self._mask: Any = None
        self._flushes: dict[tuple[int, ...], Callable[[], Any]] = {}
        if self.overlaps:
            self._make_variables()

    @property
    def is_ready(self) -> bool:
        """Whether it knows what is trained."""
        return self.trained is not None

    @property
    def overlaps(self) -> bool:
        """Whether there is another replica to send anything to."""
        return self._strategy.num_replicas_in_sync > 1

    @property
    def variables(self) -> list[keras.Variable]:
        """All of its state. One replica keeps nothing, but may take up what several have kept."""
        if self._mask is None:
            self._make_variables()
        return [] if self._mask is None else [*self._waiting, self._mask]

    def forget_traces(self) -> None:
        """To be called when the optimizer may have changed."""
        self._flushes.clear()

    def is_waiting(self) -> bool:
        """Whether gradients wait to be sent; the same on all workers. Outside of a step."""
        return any(self._read_mask())

    def drop(self) -> None:
        """Forgets what waits. Outside of a step."""
        if self.is_waiting():
            _log.warning("The gradients of the last step of a `fit` that was interrupted are left out.")
            with self._strategy.scope():
                self._mask.assign(np.zeros(len(self._waiting), "int32"))

    def flush(self, optimizer: keras.optimizers.Optimizer, update: Callable[..., None]) -> None:
        """Makes the update that is due, if there is one. Outside of a step, by every worker.

        Args:
            optimizer: The one whose gradients these are.
            update: Takes it, gradients of the global batch, and the variables; called by each replica.
        """
        mask = self._read_mask()
        if not any(mask):
            return
        if mask not in self._flushes:
            # The optimizer leads here, and shall not be held from here.
            held = weakref.ref(optimizer)

            def flush() -> None:
                self._flush_replica(held(), mask, update)

            self._flushes[mask] = tf.function(lambda: self._strategy.run(flush), autograph=False)
        self._flushes[mask]()

    def send(self, scale: Any) -> Sent:
        """Sends what waits; to be called by every replica before the forward pass.

        Args:
            scale: By what gradients are multiplied on the way, against underflow.
        """
        is_there = tf.reduce_any(tf.equal(tf.convert_to_tensor(self._mask.value), 1))
        # A compression remembers what it has sent: what is not used must not be sent.
        sums = tf.cond(is_there, lambda: self._sums(scale), lambda: [tf.zeros_like(each) for each in self._values()])
        return Sent(is_there, list(sums), _graph())

    def exchange(
        self, sent: Sent, gradients: Sequence[Any], variables: Sequence[keras.Variable], *, scale: Any, update: Update
    ) -> None:
        """Makes the update with what was sent, if there was anything, and keeps the gradients of this step.

        Args:
            sent: In this very step.
            gradients: Of this replica, multiplied by `scale`; those that are None get no update.
            variables: One for each.
            scale: Against underflow.
            update: Takes gradients that are multiplied by `scale`.
        """
        places = [self._place_of(variable) for variable in variables]
        old = [
            None if gradient is None else tf.cast(scaled(sent.sums[place], scale), gradient.dtype)
            for gradient, place in zip(gradients, places, strict=True)
        ]
        kept = {
            place: unscaled(widened(_dense(gradient, self._waiting[place].shape)), scale)
            for gradient, place in zip(gradients, places, strict=True)
            if gradient is not None
        }

        def make_update() -> tf.Tensor:
            update(old, variables)
            return tf.constant(0)

        tf.cond(sent.is_there, make_update, lambda: tf.constant(0))
        for place, gradient in kept.items():
            self._waiting[place].assign(gradient)
        self._mask.assign([int(place in kept) for place in range(len(self._waiting))])

    def _make_variables(self) -> None:
        if self.trained is None:
            return
        with self._strategy.scope():
            self._waiting = [
                keras.Variable(
                    tf.zeros(variable.shape, _kept_dtype(variable)),
                    trainable=False,
                    # One value per replica; assignments stay where they are made.
                    synchronization="on_read",
                    aggregation="sum",
                    name=f"{variable.path}_waiting".replace("/", "_"),
                )
                for variable in self.trained
            ]
            # Which of them wait: what had no gradient must get no update, at a flush either.
            self._mask = keras.Variable(
                tf.zeros([len(self._waiting)], tf.int32), dtype="int32", trainable=False, name="gradients_waiting"
            )
        write_locally(self._mask)

    def _read_mask(self) -> tuple[int, ...]:
        if self._mask is None:
            return ()
        # The local copy: all are equal.
        value = self._strategy.experimental_local_results(self._mask.value)[0]
        return tuple(int(each) for each in value.numpy())

    def _values(self) -> list[tf.Tensor]:
        return [tf.convert_to_tensor(variable.value) for variable in self._waiting]

    def _sums(self, scale: Any) -> list[tf.Tensor]:
        # All of them travel: which have no gradient is known when the backward pass is traced, after this.
        with all_are_ready():
            totals = self._reduce([scaled(value, scale) for value in self._values()], scale)
        return [unscaled(total, scale) for total in totals]

    def _flush_replica(self, optimizer: Any, mask: tuple[int, ...], update: Callable[..., None]) -> None:
        scale = optimizer.scale_loss(1.0)
        totals = zip(self._sums(scale), self.trained or (), mask, strict=True)
        gradients = [tf.cast(scaled(total, scale), each.dtype) if waits else None for total, each, waits in totals]
        update(optimizer, gradients, self.trained)
        self._mask.assign([0] * len(mask))

    def _place_of(self, variable: keras.Variable) -> int:
        for place, trained in enumerate(self.trained or ()):
            if trained is variable:
                return place
        raise _not_built(variable.path)


BUFFER = Fact[DoubleBuffer](GradientRoute, "double_buffer")


def set_buffer(optimizer: keras.optimizers.Optimizer, buffer: DoubleBuffer | None) -> None:
    """Lets the gradients of `optimizer` wait in `buffer`; None for not at all."""
    if buffer is None:
        BUFFER.forget(optimizer)
    else:
        BUFFER.set(optimizer, buffer)


def buffer_of(optimizer: keras.optimizers.Optimizer) -> DoubleBuffer | None:
    """Where the gradients of `optimizer` wait; None where they do not."""
    return BUFFER.of(optimizer)


# What the step has sent, by the identity of the optimizer; None once it was used.
_SENT = Slot[dict[int, Sent | None] | None]("sent")
_AT_ONCE = Flag("sends_at_once")


def at_once() -> contextlib.AbstractContextManager[None]:
    """Steps that this thread traces or runs meanwhile know no next step, and are exact."""
    return _AT_ONCE.raised()


@contextlib.contextmanager
def sending_what_waits(optimizers: Iterable[keras.optimizers.Optimizer]) -> Iterator[None]:
    """Is a step of `fit` in which each of `optimizers` updates once. Sends first, so that it computes meanwhile.

    TensorFlow runs the collectives of a replica one by one, in the order in which they are traced: those of the step
    itself have to come after.
    """
    sent: dict[int, Sent | None] = {}
    for optimizer in () if _AT_ONCE.is_raised else optimizers:
        buffer = buffer_of(optimizer)
        if buffer is not None and buffer.overlaps and id(innermost(optimizer)) not in sent:
            sent[id(innermost(optimizer))] = buffer.send(optimizer.scale_loss(1.0)) if buffer.is_ready else None
    with _SENT.carrying(sent):
        yield


def takes_turns(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether the next `apply` of `optimizer` in this thread is to use the gradients of the step before."""
    return id(innermost(optimizer)) in (_SENT.value or {})


def take_turns(
    optimizer: keras.optimizers.Optimizer,
    gradients: Sequence[Any],
    variables: Sequence[keras.Variable] | None,
    update: Update,
) -> None:
    """Applies the gradients of the step before, and keeps these.

    Args:
        optimizer: For which `takes_turns`.
        gradients: Of this replica, weighted by its share; multiplied by the loss scale, where there is one.
        variables: One for each; None for all that are trained.
        update: Applies gradients of the global batch.

    Raises:
        CommunicationError: When a `train_step` updates more than once, or in a branch or a loop.
    """
    buffer, sent = buffer_of(optimizer), (_SENT.value or {}).get(id(innermost(optimizer)))
    if buffer is None or not buffer.is_ready:
        raise _not_built(optimizer.name)
    if sent is None or sent.graph is not _graph():
        raise CommunicationError(
            "With `double_buffering` each optimizer is applied once in a `train_step`, outside of conditions and "
            "loops of TensorFlow: what it has sent before is for one update.\n"
            f"Received: {'a second' if sent is None else 'a conditional or repeated'} `apply` of {optimizer.name!r}. "
            "Leave `double_buffering` out."
        )
    # `sending_what_waits` has filled it.
    (_SENT.value or {})[id(innermost(optimizer))] = None
    trained = list(variables or buffer.trained or ())
    buffer.exchange(sent, gradients, trained, scale=optimizer.scale_loss(1.0), update=update)


def _graph() -> Any:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _kept_dtype(variable: keras.Variable) -> str:
    """Narrow floats are kept in float32: without the loss scale they might underflow."""
    dtype = tf.as_dtype(keras.backend.standardize_dtype(variable.dtype))
    return "float32" if dtype.size < 4 else dtype.name


def _dense(gradient: Any, shape: Sequence[int]) -> tf.Tensor:
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, shape[0])


def _not_built(name: str) -> CommunicationError:
    return CommunicationError(
        "`double_buffering` keeps the gradients of each step, and must know all variables before the first one.\n"
        f"Received: {name!r}, for which the optimizer was not built. "
        "Call `optimizer.build(variables)` under the strategy's scope before `fit`."
    )
