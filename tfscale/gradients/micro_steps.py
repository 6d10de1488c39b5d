"""How does a replica run its rows in parts, one after the other, as one step?

A micro-step is to a replica what a replica is to the job: part j of replica i holds n_ij of the n rows of the global
batch, and by the convention of `share.py` its loss counts n_ij / n. So gradients are summed, metrics go on counting,
and the moving statistics of BatchNormalization are averaged by rows: N replicas of k micro-steps each compute what N k
replicas would. Only one part's activations are alive at a time.

Logical replicas are parts that do not depend on N: those of L replicas, of which each draws by its own number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.exact.terms import counting_anew
from tfscale.framework.models import call_model, compute_loss_of
from tfscale.gradients.changing_nothing import ChangingNothing
from tfscale.gradients.logical_replicas import (
    LogicalReplicas,
    logical_parts,
    refuse_draws_from_states,
)
from tfscale.gradients.part_sums import InTree, OnDevice, list_of
from tfscale.gradients.parts import Part, Run, make_part, with_rows
from tfscale.gradients.step_state import Counts, StepState
from tfscale.replicas.all_reduce import all_reduce_sum
from tfscale.replicas.own_share import make_lone_share, static_sizes
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


def adds_in_tree(division: Division | None) -> bool:
    """Whether sums over parts are those over all replicas already, in an order that depends on no device."""
    return isinstance(division, LogicalReplicas) and division.deterministic


def _sizes(part: Part) -> tuple[int, ...] | None:
    """`Share.static_sizes` of a part: of other replicas' parts nothing is known."""
    if not part.share.is_part:
        return part.share.static_sizes
    return None if static_sizes(part.batch) is None else ()


def in_own_share(part: Part, function: Callable[[Part], Any]) -> Any:
    """Returns `function(part)`, whose losses count as those of the part."""
    known = part.share.denominators
    fresh = part.share._replace(denominators=None if known is None else known.again(), static_sizes=_sizes(part))
    with in_share(fresh), counting_anew():
        return function(part._replace(share=fresh))


def sum_over_micro_steps(
    model: keras.Model,
    run: Run,
    batch: ReplicaBatch,
    share: Share,
    division: Division,
    statistics: Sequence[keras.Variable],
    counted: Sequence[keras.Variable] = (),
    num_global: int = 0,
) -> list[Any]:
    """As `add_parts`, for the pass of a model: what a step changes once is changed once.

    Args:
        model: The model that is trained or evaluated.
        run: Its pass over one part.
        batch: The rows of the replica.
        share: Its share of the global batch.
        division: How to divide them.
        statistics: The moving averages of its BatchNormalization layers. Left to whoever reduces them.
        counted: The states of metrics, to which each part adds what it has counted.
        num_global: As `add_parts`.
    """
    totals = _global_denominators(model, batch, share, division)
    share = share._replace(denominators=Denominators(totals))
    state = StepState(model, statistics)
    counts = Counts(counted if adds_in_tree(division) else ())

    def run_apart(part: Part) -> list[Any]:
        state.begin(part)
        counts.begin()
        outputs = run(part)
        state.end(part)
        return [*counts.own(), *outputs]

    sums = add_parts(run_apart, batch, share, division, num_global + len(counts))
    state.finish()
    counts.finish(sums[: len(counts)])
    return sums[len(counts) :]


def _global_denominators(model: keras.Model, batch: ReplicaBatch, share: Share, division: Division) -> list[Any]:
    """What the loss terms divide by, where it is not the number of examples: sums over all parts of all replicas.

    They must be known before the first gradient is. The pass that counts them changes no variable; what it computes
    besides masks and weights is not asked for, and left out by TensorFlow.
    """
    state = StepState(model, [])

    def run(part: Part) -> list[Any]:
        counting = Denominators()
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(part.batch.data)
        with ChangingNothing(model) as scope:
            state.begin(part)
            # By itself, no layer exchanges anything.
            with in_share(
                make_lone_share(part.share.num_examples)._replace(
                    logical=part.share.logical, micro_step=part.share.micro_step, static_sizes=_sizes(part)
                )
            ):
                y_pred = call_model(model, x, training=True)
            with in_share(part.share._replace(denominators=counting)):
                compute_loss_of(model, x, y, y_pred, sample_weight, training=True)
            scope.refuse_made_of_others(counting.found)
        return counting.found

    if adds_in_tree(division):
        return add_parts(run, batch, share, division, num_global=None)
    counts = add_parts(run, batch, share, division)
    return all_reduce_sum(counts) if counts else []


def add_parts(run: Run, batch: ReplicaBatch, share: Share, division: Division, num_global: int | None = 0) -> list[Any]:
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
        num_global: How many of the outputs, from the first, are added up over all replicas where `adds_in_tree`; None
            for all. The rest is this replica's own.

    Returns:
        The sums, in the same order; sparse gradients one after the other.
    """
    if isinstance(division, LogicalReplicas):
        adding = functools.partial(InTree, division.total, num_global) if division.deterministic else None
        return _in_a_loop(run, *logical_parts(batch, share, division), adding, refuses_draws=True)
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


def _in_a_loop(
    run: Run,
    count: Any,
    part_at: Callable[[Any], Part],
    adding: Callable[[list[Any]], OnDevice] | None = None,
    *,
    refuses_draws: bool = False,
) -> list[Any]:
    """Adds up what `run` returns for the parts from 0, a number, to `count`, integer tensors."""
    # By itself, because only its outputs tell the loop what there is to be added.
    outputs = run(part_at(0))
    if refuses_draws:
        refuse_draws_from_states()
    is_one = isinstance(count, int) and count == 1
    if all(output is None for output in outputs) or (is_one and adding is None):
        return outputs
    sums = (adding or OnDevice)(outputs)
    carried = sums.begin(outputs)
    if not is_one:
        _, carried = tf.while_loop(
            lambda index, _: index < tf.cast(count, index.dtype),
            lambda index, carried: (index + 1, sums.add(carried, run(part_at(index)), index)),
            (tf.constant(1, tf.int64), carried),
            parallel_iterations=1,
        )
    return sums.end(carried)


def put_together(run: Callable[[Part], Any], batch: ReplicaBatch, share: Share, division: LogicalReplicas) -> Any:
    """Runs `run` on the rows of each logical replica of this device; returns what it finds of all rows, in their order.

    Args:
        run: Takes a `Part`, returns a structure of dense tensors with a row for each of its rows.
        batch: The rows of the replica.
        share: Its share of the global batch.
        division: Among how many.
    """
    count, part_at = logical_parts(batch, share, division)
    first = run(part_at(0))

    def add(index: tf.Tensor, rows: list[tf.TensorArray]) -> tuple[tf.Tensor, list[tf.TensorArray]]:
        more = tf.nest.flatten(run(part_at(index)))
        place = tf.cast(index, tf.int32)
        return index + 1, [each.write(place, values) for each, values in zip(rows, more, strict=True)]

    _, rows = tf.while_loop(
        lambda index, _: index < tf.cast(count, index.dtype),
        add,
        (tf.constant(1, tf.int64), [list_of(each) for each in tf.nest.flatten(first)]),
        parallel_iterations=1,
    )
    return tf.nest.pack_sequence_as(first, [each.concat() for each in rows])


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
