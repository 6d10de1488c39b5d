"""How does a replica run its rows in parts, one after the other, as one step?

A micro-step is to a replica what a replica is to the job: part j of replica i holds n_ij of the n rows of the global
batch, and by the convention of `share.py` its loss counts n_ij / n. So gradients are summed, metrics go on counting,
and the moving statistics of BatchNormalization are averaged by rows: N replicas of k micro-steps each compute what N k
replicas would. Only one part's activations are alive at a time.

Logical replicas are parts that do not depend on N: those of L replicas, of which each draws by its own number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.exact.randomness import micro_step_seed, separate_generators
from tfscale.exact.terms import counting_anew
from tfscale.framework.models import call_model, compute_loss_of
from tfscale.gradients.logical_replicas import (
    LogicalReplicas,
    kept_by_layers,
    logical_parts,
    refuse_draws_from_states,
)
from tfscale.gradients.parts import Part, Run, make_part, with_rows
from tfscale.replicas.all_reduce import all_reduce_sum
from tfscale.replicas.own_share import make_lone_share
from tfscale.replicas.replica_batch import ReplicaBatch, own_rows, take_rows, with_stand_in
from tfscale.replicas.share import Denominators, Share, in_share
from tfscale.replicas.sparse import is_same_for_every_batch, merge_unique_rows


class MicroSteps(NamedTuple):
    """How the rows of a replica are divided."""

    rows: int
    """Most rows of a micro-step."""
    fixed: int | None = None
    """Micro-steps of every replica, where the replicas meet in each one, as for synchronised BatchNormalization. None
    where each takes as many as it needs."""


Division = MicroSteps | LogicalReplicas


def in_own_share(part: Part, function: Callable[[Part], Any]) -> Any:
    """Returns `function(part)`, whose losses count as those of the part."""
    known = part.share.denominators
    fresh = part.share if known is None else part.share._replace(denominators=known.again())
    with in_share(fresh), counting_anew():
        return function(part._replace(share=fresh))


def sum_over_micro_steps(
    model: keras.Model,
    run: Run,
    batch: ReplicaBatch,
    share: Share,
    division: Division,
    statistics: Sequence[keras.Variable],
) -> list[Any]:
    """As `add_parts`, for the pass of a model: what a step changes once is changed once.

    Args:
        model: The model that is trained or evaluated.
        run: Its pass over one part.
        batch: The rows of the replica.
        share: Its share of the global batch.
        division: How to divide them.
        statistics: The moving averages of its BatchNormalization layers. Left to whoever reduces them.
    """
    totals = _global_denominators(model, batch, share, division)
    share = share._replace(denominators=Denominators(totals))
    state = StepState(model, statistics, is_logical=isinstance(division, LogicalReplicas))

    def run_apart(part: Part) -> list[Any]:
        state.begin(part)
        outputs = run(part)
        state.end(part)
        return outputs

    sums = add_parts(run_apart, batch, share, division)
    state.finish()
    return sums


def changing_nothing(model: keras.Model) -> keras.StatelessScope:
    """A scope in which a pass of `model` changes no variable."""
    # Weight regularizers look for their variables here.
    values = [(variable, variable.value) for variable in model.trainable_weights]
    return keras.StatelessScope(state_mapping=values, collect_losses=True)


def _global_denominators(model: keras.Model, batch: ReplicaBatch, share: Share, division: Division) -> list[Any]:
    """What the loss terms divide by, where it is not the number of examples: sums over all parts of all replicas.

    They must be known before the first gradient is. The pass that counts them changes no variable; what it computes
    besides masks and weights is not asked for, and left out by TensorFlow.
    """
    state = StepState(model, [], is_logical=isinstance(division, LogicalReplicas))

    def run(part: Part) -> list[Any]:
        counting = Denominators()
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(part.batch.data)
        with changing_nothing(model):
            state.begin(part)
            # By itself, no layer exchanges anything.
            with in_share(make_lone_share(part.share.num_examples)._replace(logical=part.share.logical)):
                y_pred = call_model(model, x, training=True)
            with in_share(part.share._replace(denominators=counting)):
                compute_loss_of(model, x, y, y_pred, sample_weight, training=True)
        return counting.found

    counts = add_parts(run, batch, share, division)
    return all_reduce_sum(counts) if counts else []


def add_parts(run: Run, batch: ReplicaBatch, share: Share, division: Division) -> list[Any]:
    """Runs `run` on each part of a replica's rows, and adds up what it returns.

    All micro-steps but the first have exactly `division.rows` rows, a shape that is known while tracing; the first has
    what is left. With a fixed count, and of logical replicas, the parts differ by one row at most, and some may be
    stand-ins.

    Args:
        run: Takes a `Part`, returns tensors, sparse gradients or None, each of the same kind for every part. When it
            returns nothing for the first part it is not asked about others.
        batch: The rows of the replica.
        share: Its share of the global batch.
        division: How to divide them.

    Returns:
        The sums, in the same order; sparse gradients one after the other.
    """
    if isinstance(division, LogicalReplicas):
        return _in_a_loop(run, *logical_parts(batch, share, division), is_logical=True)
    rows = own_rows(batch)
    if division.fixed is not None:
        return _one_by_one(run, batch, share, rows, division.fixed)
    if isinstance(rows, int) and rows <= division.rows:
        return run(Part(batch, share, 0))
    count = (rows + division.rows - 1) // division.rows
    first = rows - (count - 1) * division.rows

    def part_at(index: Any) -> Part:
        if isinstance(index, int):
            return make_part(batch, share, 0, (0, first))
        start = first + (index - 1) * division.rows
        part = make_part(batch, share, index, (start, start + division.rows))
        own = part.share._replace(rows_known=isinstance(rows, int))
        return part._replace(batch=with_rows(part.batch, division.rows), share=own)

    return _in_a_loop(run, count, part_at)


def _in_a_loop(run: Run, count: Any, part_at: Callable[[Any], Part], *, is_logical: bool = False) -> list[Any]:
    """Adds up what `run` returns for the parts from 0, a number, to `count`, integer tensors."""
    # By itself, because only its outputs tell the loop what there is to be added.
    outputs = run(part_at(0))
    if is_logical:
        refuse_draws_from_states()
    present = [position for position, output in enumerate(outputs) if output is not None]
    if not present or (isinstance(count, int) and count == 1):
        return outputs

    def body(index: tf.Tensor, sums: list[Any]) -> tuple[tf.Tensor, list[Any]]:
        more = run(part_at(index))
        return index + 1, [_add(total, more[position], index) for position, total in zip(present, sums, strict=True)]

    _, sums = tf.while_loop(
        lambda index, _: index < tf.cast(count, index.dtype),
        body,
        (tf.constant(1, tf.int64), [_begin(outputs[position]) for position in present]),
        parallel_iterations=1,
    )
    totals = {position: _end(total, outputs[position]) for position, total in zip(present, sums, strict=True)}
    return [totals.get(position) for position in range(len(outputs))]


def _one_by_one(run: Run, batch: ReplicaBatch, share: Share, rows: Any, count: int) -> list[Any]:
    """As many parts on every replica, and no loop: the loops of two replicas could not wait for each other."""
    outputs: list[list[Any]] = []
    for index in range(count):
        bounds = rows * index // count, rows * (index + 1) // count
        before = tf.nest.flatten(outputs[-1:], expand_composites=True)
        # Else TensorFlow would run them all at once, with the memory of all.
        with tf.control_dependencies([value for value in before if value is not None]):
            part = make_part(batch, share, index, bounds)
            # A part may be empty, where others have rows to exchange statistics of.
            data = take_rows(batch.data, *with_stand_in(*bounds, rows), batch.whole)
            outputs.append(run(part._replace(batch=batch._replace(data=data))))
    return [_total(values) for values in zip(*outputs, strict=True)]


def _begin(output: Any) -> Any:
    """What the loop carries: a sum, or lists of the values and the rows of a sparse gradient."""
    if not isinstance(output, tf.IndexedSlices) or is_same_for_every_batch(output):
        return _dense(output)
    return _list_of(output.values), _list_of(output.indices)


def _dense(output: Any) -> Any:
    """What is added up: of a sparse gradient with the same rows in every part, their values."""
    return output.values if isinstance(output, tf.IndexedSlices) else output


def _list_of(first: tf.Tensor) -> tf.TensorArray:
    shape = tf.TensorShape([None, *first.shape[1:]])
    made = tf.TensorArray(first.dtype, 1, dynamic_size=True, infer_shape=False, element_shape=shape)
    return made.write(0, first)


def _add(total: Any, more: Any, index: tf.Tensor) -> Any:
    if not isinstance(total, tuple):
        return total + _dense(more)
    position = tf.cast(index, tf.int32)
    return total[0].write(position, more.values), total[1].write(position, more.indices)


def _end(total: Any, first: Any) -> Any:
    if not isinstance(first, tf.IndexedSlices):
        return total
    if not isinstance(total, tuple):
        return tf.IndexedSlices(total, first.indices, first.dense_shape)
    return merge_unique_rows(tf.IndexedSlices(total[0].concat(), total[1].concat(), first.dense_shape), first)


def _total(values: Sequence[Any]) -> Any:
    if values[0] is None:
        return None
    if is_same_for_every_batch(values[0]):
        return tf.IndexedSlices(tf.add_n([each.values for each in values]), values[0].indices, values[0].dense_shape)
    if isinstance(values[0], tf.IndexedSlices):
        rows, indices = ([getattr(each, name) for each in values] for name in ("values", "indices"))
        gathered = tf.IndexedSlices(tf.concat(rows, 0), tf.concat(indices, 0), values[0].dense_shape)
        return merge_unique_rows(gathered, values[0])
    return tf.add_n(list(values))


class StepState:
    """What a step changes once, and every micro-step would change again.

    Each part begins with the moving statistics of before the step: what they become is averaged, as over replicas.
    Each draws from streams of its own; after the step the generators are where the first part left them, so that they
    are equal on replicas with different numbers of parts. So is what else a layer keeps, of logical replicas.

    Args:
        model: The model that is trained or evaluated.
        statistics: The moving averages of its BatchNormalization layers.
        is_logical: Whether the parts are logical replicas.
    """

    def __init__(self, model: keras.Model, statistics: Sequence[keras.Variable], *, is_logical: bool = False):
        self._is_logical = is_logical
        self._statistics = list(statistics)
        self._seeds = [generator.state for generator in separate_generators(model)]
        if is_logical:
            self._seeds += kept_by_layers(model, [*self._statistics, *self._seeds])
        self._before = [tf.convert_to_tensor(each.value) for each in (*self._statistics, *self._seeds)]
        self._after_first: list[tf.Tensor] = []

    def begin(self, part: Part) -> None:
        """To be called before anything else in a part."""
        if isinstance(part.index, int) and part.index == 0:
            return
        for variable, value in zip(self._statistics, self._before, strict=False):
            variable.assign(value)
        for variable, value in zip(self._seeds, self._before[len(self._statistics) :], strict=True):
            # A logical replica's number is mixed in where it draws.
            variable.assign(value if self._is_logical else micro_step_seed(value, part.index))

    def end(self, part: Part) -> None:
        """To be called at the end of each part."""
        if isinstance(part.index, int) and part.index == 0:
            self._after_first = [tf.convert_to_tensor(seed.value) for seed in self._seeds]

    def finish(self) -> None:
        """To be called after the last part. The statistics are left to whoever reduces them."""
        for variable, value in zip(self._seeds, self._after_first, strict=True):
            variable.assign(value)
