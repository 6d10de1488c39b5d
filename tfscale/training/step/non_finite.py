"""In which step, and on which replica, was a loss first not finite, and what becomes of that step?

Each replica notes the first such step by itself, with its rows. The notes travel with the metric states: in the
reduction that the step has anyway, or after the last of several steps. Where such a step is not to be kept, one more
number travels with the gradients: on how many replicas something was not finite. All of them get the same sum, and all
make the update or none.

An update that Keras's step makes is made under a condition, and what its forward pass has changed is put back. Of a
step that is made otherwise, everything is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.exact import metrics
from tfscale.exact.randomness import seed_generators
from tfscale.exact.terms import is_recording
from tfscale.gradients.sending import compression_state
from tfscale.replicas.all_reduce import replica_number
from tfscale.replicas.made import made_under
from tfscale.replicas.own_copies import one_for_each, own_of
from tfscale.replicas.owners import Fact, PreparedModel
from tfscale.replicas.replica_batch import ReplicaBatch, has_rows, local_replicas
from tfscale.replicas.share import Share
from tfscale.training.step.non_finite_notes import IN_GRADIENTS, IN_LOSS, IN_WEIGHTS, Note

OFF, REPORT, SKIP, STOP = range(4)
_NO_ROW = tf.int32.max
# What a step adds to a note, and what one does in which something was found.
_A_STEP, _A_FIND = np.eye(len(Note._fields), dtype="float32")[:2]
# Losses count more than all the micro-steps of a step whose gradients alone are not finite.
_BAD_LOSS = 2.0**20


class LossExchange:
    """What the steps of one model note of their losses, once they are watched.

    Args:
        strategy: Of the model.
        guards: Whether its steps can be left out. Steps that cannot are traced without a condition.
    """

    def __init__(self, strategy: tf.distribute.Strategy, *, guards: bool):
        self.guards = guards
        self.strategy = strategy
        self.replicas = local_replicas(strategy)
        self.level = OFF
        """What is asked for."""
        with tf.device("CPU:0"):
            self._level = tf.Variable(OFF, trainable=False, name="losses_watched")
        zeros = tf.zeros([self.replicas.total, len(Note._fields)])
        # What one writes, another one must not wait for.
        self._received = self._of_each(zeros)
        self._left_out = self._of_each(tf.constant(0, tf.int64))
        self._notes = self._of_each(zeros[0])
        self._halted = self._of_each(tf.constant(False))

    def _of_each(self, value: tf.Tensor) -> list[tf.Variable]:
        return one_for_each(self.replicas.here, lambda: tf.Variable(value, trainable=False))

    def begin(self, level: int) -> None:
        """Switches it on: the strictest of those that ask for it."""
        self.level = max(self.level, level)
        self._level.assign(self.level)
        self.forget()
        for variable in (*self._left_out, *self._received, *self._halted):
            variable.assign(tf.zeros_like(variable))

    def end(self) -> None:
        """Switches it off; what comes next is nobody's."""
        self.level = OFF
        self._level.assign(OFF)

    def begin_epoch(self, done: int) -> None:
        """To be called before the first step of an epoch, or of what is left of one."""
        for note in self._notes:
            note[0].assign(done)

    def forget(self) -> None:
        """Lets the replicas note the first step from now on."""
        for note in self._notes:
            note.assign(note * tf.one_hot(0, len(Note._fields)))

    def read(self) -> list[Note] | None:
        """By replica, what was noted; None where there is nothing to be told, and the steps were watched."""
        received = self._received[0].numpy()
        if received[0, 0] and not received[:, 1].any():
            return None
        return [Note(*row) for row in received.tolist()]

    def left_out(self) -> int:
        """How many steps were left out in this `fit`."""
        return int(self._left_out[0].numpy())

    def note(self, flag: tf.Tensor, row: Callable[[], Sequence[Any]]) -> tf.Tensor:
        """Counts a step of this replica, and notes it if something was found in it.

        Args:
            flag: Not zero where something was found.
            row: Computes what is noted of the first such step, from its kind on.

        Returns:
            Whether something was found.
        """
        note, halted = self._of_replica(self._notes, self._halted)
        is_found = flag > 0
        if self.guards:
            is_found &= ~tf.convert_to_tensor(halted)
        note.assign_add(_A_STEP)

        def keep() -> tf.Tensor:
            first = tf.stack([tf.cast(each, tf.float32) for each in (note[0], 1, note[0], *row())])
            note.assign(tf.where(note[1] > 0, note + _A_FIND, first))
            return tf.constant(0)

        # By itself a branch that is not taken costs as much as it has operations.
        tf.cond(is_found, keep if tf.executing_eagerly() else _not_inlined(keep), lambda: tf.constant(0))
        return is_found

    def slots(self) -> tf.Tensor:
        """This replica's note in its place among zeros."""
        (note,) = self._of_replica(self._notes)
        return tf.one_hot(replica_number(), self.replicas.total)[:, tf.newaxis] * tf.convert_to_tensor(note)

    def receive(self, slots: tf.Tensor) -> None:
        """Keeps what all replicas have noted."""
        self._of_replica(self._received)[0].assign(slots)

    def leaves_out(self, found: tf.Tensor) -> tf.Tensor:
        """Whether this step is not to be kept, given on how many replicas something was found; equal on all of them."""
        (halted,) = self._of_replica(self._halted)
        is_found = found > 0
        stays_halted = tf.convert_to_tensor(halted) | (is_found & (self._level >= STOP))
        halted.assign(stays_halted)
        is_left_out = (self._level >= SKIP) & (is_found | stays_halted)
        self._of_replica(self._left_out)[0].assign_add(tf.cast(is_left_out, tf.int64))
        return is_left_out

    def _of_replica(self, *lists: Sequence[tf.Variable]) -> list[tf.Variable]:
        return [own_of(each, self.replicas.first) for each in lists]


LOSSES = Fact[LossExchange](PreparedModel, "losses")


def watch_losses(model: keras.Model, strategy: tf.distribute.Strategy, level: int) -> bool:
    """Switches on the exchange of `model`; returns whether it is new: then its step has to be traced anew."""
    known = LOSSES.of(model)
    before = OFF if known is None else known.level
    is_new = known is None or (level >= SKIP and not known.guards)
    if known is None or is_new:
        known = LOSSES.set(model, LossExchange(strategy, guards=level >= SKIP))
    known.begin(max(level, before))
    return is_new


def exchange_of(model: keras.Model) -> LossExchange | None:
    """What watches the losses of `model`; None where nobody does."""
    return LOSSES.of(model)


class Telling:
    """What one replica tells of the steps so far, with other things that travel.

    Args:
        exchange: Of the model.
    """

    def __init__(self, exchange: LossExchange):
        self._exchange = exchange
        self.sent: list[tf.Tensor] = []
        """What travels."""

    def tell(self, states: list[tf.Tensor], variables: Sequence[keras.Variable]) -> list[tf.Tensor]:
        """Adds to metric states, of these variables, what has to travel with them."""
        del variables
        self.sent.append(self._exchange.slots())
        return states

    def receive(self, sums: Sequence[tf.Tensor], states: list[tf.Tensor]) -> list[tf.Tensor]:
        """Takes what the reduction made of `sent`, and of what `tell` returned; returns the states that count."""
        for slots in sums:
            self._exchange.receive(slots)
        return states

    def update(self, make: Callable[[], Any]) -> None:
        """Makes the update."""
        make()


class StepWatch(Telling):
    """What one replica notes of one step, sends, and puts back.

    Args:
        exchange: Of the model.
        model: Whose step it is.
        share: Of this replica.
        batch: Its rows.
        holds_all: Whether all variables are put back if the step is left out, and not only what a pass changes.
    """

    def __init__(
        self, exchange: LossExchange, model: keras.Model, share: Share, batch: ReplicaBatch, *, holds_all: bool
    ):
        super().__init__(exchange)
        self.guards = exchange.guards
        self._model = model
        self._share = share
        self._batch = batch
        self._held = self._hold(holds_all) if self.guards else {}
        self._sends_before = False
        self._left_out: Any = None

    def note_passes(self, flag: tf.Tensor) -> None:
        """Notes what `not_finite` has found in the passes over this replica's rows, before the update."""
        self._note(flag, lambda: tf.where(flag >= _BAD_LOSS, IN_LOSS, IN_GRADIENTS))

    def note_logs(self, named: Sequence[tuple[str, Any]]) -> None:
        """Notes what a step has returned that is made otherwise than Keras's: its logs of losses, or all if none is."""
        losses = [value for name, value in named if "loss" in name.lower()] or [value for _, value in named]
        flag = _flag(~_are_finite(losses) & (self._share.num_examples > 0), _BAD_LOSS)
        if self.guards:
            flag += _flag(~_are_finite(variable.value for variable in self._model.trainable_variables))
        self._note(flag, lambda: tf.where(flag >= _BAD_LOSS, IN_LOSS, IN_WEIGHTS))

    def _note(self, flag: tf.Tensor, kind: Callable[[], Any]) -> None:
        def row() -> list[Any]:
            return [kind(), self._share.first_row, self._share.num_examples, _first_bad_row(self._batch)]

        is_found = self._exchange.note(flag, row)
        if self.guards:
            self.sent.append(_flag(is_found))

    def tell(self, states: list[tf.Tensor], variables: Sequence[keras.Variable]) -> list[tf.Tensor]:
        """As `Telling`: the notes, and what the states were before a step that is left out."""
        self._sends_before = self.guards
        before = [self._before(variable) for variable in variables] if self.guards else []
        return [*super().tell(states, variables), *before]

    def receive(self, sums: Sequence[tf.Tensor], states: list[tf.Tensor]) -> list[tf.Tensor]:
        """As `Telling`; puts back what the step has changed so far if it is left out, and then gives older states."""
        states = super().receive(sums[self.guards :], states)
        if not self.guards:
            return states
        left_out = self._left_out = self._exchange.leaves_out(sums[0])

        def put_back() -> tf.Tensor:
            for copy, value in self._held.values():
                copy.assign(value)
            return tf.constant(0)

        tf.cond(left_out, put_back, lambda: tf.constant(0))
        if not self._sends_before:
            return states
        after, before = states[: len(states) // 2], states[len(states) // 2 :]
        return [tf.where(left_out, *pair) for pair in zip(before, after, strict=True)]

    def update(self, make: Callable[[], Any]) -> None:
        """As `Telling`, unless the step is left out."""
        if not self.guards:
            make()
            return

        def kept() -> tf.Tensor:
            make()
            return tf.constant(0)

        tf.cond(self._left_out, lambda: tf.constant(0), kept)

    def _hold(self, holds_all: bool) -> dict[int, tuple[Any, tf.Tensor]]:
        """This replica's copies, and what they hold: reading copies nothing until a copy is changed in its place.

        Random generators go on: what is drawn next must not be what has failed.
        """
        variables = self._all() if holds_all else self._changed_by_pass()
        seeds = {id(each.state.value) for each in seed_generators(self._exchange.strategy, self._model)}
        copies = {id(each): self._copy(each) for each in variables if id(each) not in seeds}
        return {key: (copy, copy.read_value()) for key, copy in copies.items() if copy is not None}

    def _all(self) -> list[Any]:
        own = [variable.value for variable in self._model.variables]
        return [*own, *made_under(self._exchange.strategy).variables]

    def _changed_by_pass(self) -> list[Any]:
        model = self._model
        counted = [variable for metric in metrics.metrics_of(model) for variable in metric.variables]
        # What a reduction measures on the way, such as AdaScale's gain, is there before the update.
        numbers = [variable for variable in model.optimizer.variables if len(variable.shape) == 0]
        variables = [*model.non_trainable_variables, *counted, *numbers]
        return [*(variable.value for variable in variables), *compression_state(model.optimizer)]

    def _copy(self, variable: Any) -> Any:
        copies = self._exchange.strategy.experimental_local_results(variable)
        replicas = self._exchange.replicas
        return own_of(copies, replicas.first) if len(copies) == replicas.here else None

    def _before(self, variable: keras.Variable) -> tf.Tensor:
        return self._held[id(variable.value)][1]


def telling(model: keras.Model) -> Telling | None:
    """What tells of several steps that have been made; None where nobody watches."""
    exchange = LOSSES.of(model)
    return None if exchange is None or is_recording() else Telling(exchange)


def watching(model: keras.Model, share: Share, batch: ReplicaBatch, *, holds_all: bool) -> StepWatch | None:
    """What watches the step that begins; None where nobody does, or where the step is only looked at."""
    exchange = LOSSES.of(model)
    if exchange is None or is_recording():
        return None
    return StepWatch(exchange, model, share, batch, holds_all=holds_all)


def not_finite(model: keras.Model, loss: tf.Tensor, gradients: Sequence[Any]) -> list[tf.Tensor]:
    """Whether a pass has a loss that is not finite, and whether only its gradients are not, as 0 or 1.

    Gradients are looked at where their update could be left out. Those of a `LossScaleOptimizer` are its own affair:
    it tries with a smaller scale.

    Returns:
        One number, 0 where all is finite, to be added up over passes; none where nobody watches.
    """
    exchange = LOSSES.of(model)
    if exchange is None or is_recording():
        return []
    flag = _flag(~tf.reduce_all(tf.math.is_finite(loss)), _BAD_LOSS)
    dense = [each.values if isinstance(each, tf.IndexedSlices) else each for each in gradients if each is not None]
    if exchange.guards and dense and not isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        flag += _flag(~_are_finite(dense))
    return [flag]


def _flag(is_bad: tf.Tensor, value: float = 1.0) -> tf.Tensor:
    return tf.cast(is_bad, tf.float32) * value


def _not_inlined(function: Callable[[], Any]) -> Callable[[], Any]:
    """The function as one operation of the graph."""
    return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})


def _are_finite(values: Any) -> tf.Tensor:
    """Whether all numbers of all tensors are finite.

    A sum is, only if all its terms are: that reads them once and writes nothing. One that is not may be too large.
    """
    tensors = [tf.convert_to_tensor(value) for value in values]
    tensors = [each for each in tensors if each.dtype.is_floating]
    if not tensors:
        return tf.constant(True)
    total = tf.add_n([tf.cast(tf.reduce_sum(each), tf.float32) for each in tensors])
    return tf.cond(
        tf.math.is_finite(total),
        lambda: tf.constant(True),
        lambda: tf.reduce_all([tf.reduce_all(tf.math.is_finite(each)) for each in tensors]),
    )


def _first_bad_row(batch: ReplicaBatch) -> tf.Tensor:
    """The first row whose data are not finite, from 1; 0 where all are."""
    found = []
    for place, leaf in enumerate(tf.nest.flatten(batch.data)):
        if isinstance(leaf, tf.Tensor) and leaf.dtype.is_floating and has_rows(leaf) and str(place) not in batch.whole:
            rows = tf.reshape(tf.math.is_finite(leaf), [tf.shape(leaf)[0], -1])
            found.append(tf.reduce_min(tf.where(tf.reduce_all(rows, 1), _NO_ROW, tf.range(1, tf.shape(leaf)[0] + 1))))
    if not found:
        return tf.constant(0)
    first = tf.reduce_min(found)
    return tf.where(first < _NO_ROW, first, 0)
