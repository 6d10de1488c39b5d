"""What is the mean over the replicas that a loop by hand asks `strategy.reduce` for?

To TensorFlow each replica counts as much. Of means over a replica's rows, as guides log their losses, that is not the
mean over the batch where replicas have different numbers of rows; and a part of a sum that was multiplied by the number
of replicas is such a mean (`replica_count.py`). Here each counts as its rows do. What is the same on all stays that.
"""

from __future__ import annotations

import functools
import logging
import operator
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.framework.per_replica import (
    ALIKE,
    MEANS,
    OF_OWN_ROWS,
    PARTS,
    OwnResults,
    kind_of,
    of_lone_replica,
    refuse_one_alone,
    rows_of,
    tell_of_one,
    with_rows,
)
from tfscale.replicas.all_reduce import replica_id
from tfscale.replicas.graph_walk import depends_on
from tfscale.replicas.marks import ALIKE_ON_ALL, MEAN_OF_ROWS, PART_OF_SUM, marked
from tfscale.replicas.replica_batch import local_replicas

_log = logging.getLogger(__name__)

# Under this name a graph knows of how many rows its tensors are.
_ROWS = "tfscale_rows_of_results"
# What goes into a loop and what comes out of it have to be of one kind, whether the rows are known or not.
_UNKNOWN = -1
_UNKNOWN_KIND = 0


class MeansByRows:
    """Of what the functions return that a loop by hand gives to `strategy.run`.

    Args:
        strategy: Whose replicas run them; its `run`, `reduce` and `experimental_local_results` are still TensorFlow's.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self._strategy, self._run, self._reduce = strategy, strategy.run, strategy.reduce
        self._own = strategy.experimental_local_results
        replicas = local_replicas(strategy)
        # TensorFlow returns the bare results of a lone one, which carry nothing.
        self._is_lone_of_several = replicas.here == 1 < replicas.total
        self._rows = dict[int, tuple[weakref.ref[Any], Any]]()
        self._has_warned = False

    def with_rows(self, results: Any, rows: Sequence[Any], arguments: Any) -> Any:
        """Results that know of how many rows each replica has computed its own, as far as the arguments tell.

        They know it outside of the `tf.function`, too, that calls `strategy.run`.

        Args:
            results: Of `strategy.run`.
            rows: Of each replica of this process; None where its arguments do not tell.
            arguments: Those of `strategy.run`.
        """
        if self._is_lone_of_several:
            return self._of_lone(results, rows[0])
        if not any(isinstance(leaf, tf.distribute.DistributedValues) for leaf in tf.nest.flatten(results)):
            return results
        if any(each is None for each in rows):
            # What was made of something that knows its rows.
            known = [rows_of(leaf) for leaf in tf.nest.flatten(arguments)]
            rows = next(([*each] for each in known if each is not None), [_UNKNOWN] * len(rows))
        rows = [tf.cast(each, tf.int64) for each in rows]
        return tf.nest.map_structure(lambda leaf: with_rows(leaf, rows, self._kind(leaf)), results)

    def _of_lone(self, results: Any, rows: Any) -> Any:
        if rows is not None:
            for leaf in tf.nest.flatten(results):
                self._note(leaf, tf.cast(rows, tf.int64))
        known = tf.cast(_UNKNOWN if rows is None else rows, tf.int64)
        return tf.nest.map_structure(lambda leaf: of_lone_replica(leaf, known, self._kind(leaf)), results)

    def reduce(self, reduce_op: Any, value: Any, axis: int | None) -> Any:
        """As `tf.distribute.Strategy.reduce`.

        Raises:
            ModelError: When parts of a sum are to be averaged, or means added up.
        """
        if axis is not None:
            return self._reduce(reduce_op, value, axis)
        is_mean = str(getattr(reduce_op, "name", reduce_op)).upper() == "MEAN"
        for leaf in tf.nest.flatten(value):
            _refuse_other_kind(kind_of(leaf) or self._kind(leaf), is_mean=is_mean)
        if is_mean:
            return tf.nest.map_structure(lambda leaf: self._mean(reduce_op, leaf), value)
        return self._reduce(reduce_op, tf.nest.map_structure(self._as_numbers, value), None)

    def own(self, value: Any) -> Any:
        """As `tf.distribute.Strategy.experimental_local_results`; whoever takes one replica's is told what that is."""
        return OwnResults(self._own(value), functools.partial(self._tell_of_one, value))

    def _tell_of_one(self, value: Any) -> None:
        leaves = tf.nest.flatten(value)
        if any(self._kind(leaf) in OF_OWN_ROWS for leaf in leaves):
            refuse_one_alone()
        for leaf in leaves:
            tell_of_one(leaf)

    def _kind(self, leaf: Any) -> int:
        """What the replicas of this process have, as a graph was told: parts of a sum, means, or nothing of these."""
        own = self._own(leaf)
        if not all(map(tf.is_symbolic_tensor, own)):
            return _UNKNOWN_KIND
        kinds = [
            kind
            for kind, name in ((PARTS, PART_OF_SUM), (MEANS, MEAN_OF_ROWS), (ALIKE, ALIKE_ON_ALL))
            if all(id(each) in marked(each.graph, name) for each in own)
        ]
        return kinds[0] if kinds else _UNKNOWN_KIND

    def _note(self, leaf: Any, rows: tf.Tensor) -> None:
        """Of how many rows a lone replica's result is."""
        if tf.is_symbolic_tensor(leaf):
            leaf.graph.add_to_collection(_ROWS, (leaf, rows))
        elif tf.is_tensor(leaf):
            key = id(leaf)
            self._rows[key] = weakref.ref(leaf, lambda _: self._rows.pop(key, None)), rows

    def _noted(self, leaf: Any) -> list[Any] | None:
        """What is known of a result of a lone replica, or of what was made of one in a graph."""
        if not tf.is_tensor(leaf):
            return None
        if tf.is_symbolic_tensor(leaf):
            known = leaf.graph.get_collection(_ROWS)
            behind = [rows for each, rows in known if depends_on([leaf], functools.partial(operator.is_, each.op))]
            rows = [*{id(each): each for each in behind}.values()]
        else:
            rows = [self._rows[id(leaf)][1]] if id(leaf) in self._rows else []
        if len(rows) != 1 and not self._has_warned:
            self._has_warned = True
            _log.warning(
                'strategy.reduce("MEAN", ...) counts each worker alike here: nothing tells of how many rows the value '
                "of a worker is. Where they have different numbers of rows, as of a last batch, that is not the mean "
                "of the batch. Call it in the function, or the `tf.function`, that calls `strategy.run`."
            )
        return rows if len(rows) == 1 else None

    def _mean(self, reduce_op: Any, leaf: Any) -> Any:
        rows = rows_of(leaf)
        if rows is None and self._is_lone_of_several and self._is_floating(leaf):
            rows = self._noted(leaf)
        if rows is None or not self._is_floating(leaf):
            return self._reduce(reduce_op, self._as_numbers(leaf), None)
        first = local_replicas(self._strategy).first

        def by_rows(own: Any) -> tuple[Any, Any]:
            count = tf.cast(rows[replica_id() - first], own.dtype)
            count = tf.where(count < 0, tf.ones_like(count), count)
            # A mean over no rows is no number.
            return tf.math.multiply_no_nan(_as_number(own), count), count

        total, count = self._run(by_rows, (leaf,))
        return tf.math.divide_no_nan(self._reduce("SUM", total, None), self._reduce("SUM", count, None))

    def _is_floating(self, leaf: Any) -> bool:
        return bool(self._own(leaf)[0].dtype.is_floating)

    def _as_numbers(self, leaf: Any) -> Any:
        """What replicas have computed, of which one may have had no rows."""
        own = self._own(leaf)
        if self._is_lone_of_several:
            # As TensorFlow gives it. Not all workers may have none: a lone replica asks nobody else.
            return _as_number(own[0])
        return self._run(_as_number, (leaf,)) if any(map(_is_of_no_rows, own)) else leaf


def _refuse_other_kind(kind: int, *, is_mean: bool) -> None:
    if kind == PARTS and is_mean:
        raise ModelError(
            "What each replica has divided by the number of replicas, or by the size of the batch, is its part of a "
            "sum, of which the mean is less than one device has.\n"
            'Received: `strategy.reduce("MEAN", ...)` of such parts. Write `strategy.reduce("SUM", ...)`.'
        )
    if kind == MEANS and not is_mean:
        raise ModelError(
            "Of means over each replica's own rows the sum is several times what one device has.\n"
            'Received: `strategy.reduce("SUM", ...)` of such means. Write `strategy.reduce("MEAN", ...)`, in which '
            "each replica counts by its rows, and divide no further."
        )
    if kind == ALIKE and not is_mean:
        raise ModelError(
            "Of what is the same on all replicas the sum is several times what one device has.\n"
            'Received: `strategy.reduce("SUM", ...)` of such a number, as of a learning rate or a penalty on weights. '
            'Write `strategy.reduce("MEAN", ...)` for it.'
        )


def _is_of_no_rows(value: Any) -> bool:
    return bool(tf.is_tensor(value) and value.dtype.is_floating and value.shape.as_list() == [0])


def _as_number(value: Any) -> Any:
    """The loss of one replica: where it had no rows, Keras's losses return the vector of none that they were made of.

    Nothing else is such a vector: those of the others would have as many rows as theirs, and could not be reduced.
    """
    return tf.reduce_sum(value) if _is_of_no_rows(value) else value
