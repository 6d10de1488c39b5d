"""How is a step divided whose code mixes the rows of a batch?

By the calls of its layers: each takes a replica's part of the rows, and all replicas get the outputs of all parts.
What stands between the calls, such as a contrastive loss, sees all rows, and every replica computes it alike, as one
that holds the whole batch. Slopes are those of all rows there, too.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.attached import with_attached
from tfscale.exact.foreign import is_of_keras
from tfscale.exact.silence import DRAWS_FROM_STATE
from tfscale.framework.graphs import around_conditions
from tfscale.framework.losses import lists_of_losses
from tfscale.framework.models import flat_layers
from tfscale.replicas.all_reduce import all_gather, all_reduce_sum, replica_number
from tfscale.replicas.marks import mark_own
from tfscale.replicas.own_share import part_of
from tfscale.replicas.replica_batch import with_stand_in
from tfscale.replicas.replica_walk import Frame, ReplicaWalk
from tfscale.replicas.share import Share, current_share, in_share, step_graph
from tfscale.replicas.turns import around_turns, num_operations
from tfscale.step_context import Slot


class DrawsBesideError(ModelError):
    """A step on all rows draws random numbers between the calls of its layers."""


# Of a step on all rows, what this replica holds of the batch; None for any other step.
_WHOLE = Slot[Share | None]("divided_share")
# Of the graph's operations, those of divided calls and of other replicas: the first, and the one after the last.
_INSIDE = Slot[list[tuple[int, int]]]("divided_calls", list, shown=len)


def divides_calls() -> bool:
    """Whether the step at hand has all rows, and its layers divide them."""
    return _WHOLE.value is not None


@contextlib.contextmanager
def dividing_calls(model: keras.Model, divides: Callable[[Any], bool], share: Share, alone: Share) -> Iterator[None]:
    """Lets a step compute on all rows, while each call of a layer computes this replica's part.

    Args:
        model: Whose layers they are.
        divides: Says of a layer whether that is right for it. What else is called computes all rows on every replica.
        share: Of this replica.
        alone: That of a replica that holds all rows.

    Raises:
        DrawsBesideError: When the step draws random numbers between the calls that every replica would draw for itself.
    """
    for layer in flat_layers(model):
        own = _call_of(layer)
        is_divided, is_known = divides(layer), is_of_keras(type(layer))
        layer.call = functools.update_wrapper(functools.partial(_call, own, is_divided, is_known), own)
    with _WHOLE.carrying(share), _INSIDE.carrying([]):
        first = num_operations()
        with in_share(alone), _taking_turns(model):
            yield
        _refuse_draws(model.distribute_strategy, first)


def _call_of(layer: keras.layers.Layer) -> Any:
    """What a layer computes: its class's `call`, or what a script or tfscale has put in its place."""
    found = vars(layer).get("call")
    if isinstance(found, functools.partial) and found.func is _call:
        return found.args[0]
    return found or type(layer).call.__get__(layer)


@contextlib.contextmanager
def _taking_turns(model: keras.Model) -> Iterator[None]:
    """Keeps apart what is of this replica, while others take their turn in what gathers rows: losses, operations."""
    lists = lists_of_losses(flat_layers(model))

    def leave() -> tuple[int, list[list[Any]]]:
        return num_operations(), [list(losses) for losses in lists]

    def come_back(left: tuple[int, list[list[Any]]]) -> None:
        first, kept = left
        # What was traced meanwhile is of other replicas, which look for themselves.
        _INSIDE.value.append((first, num_operations()))
        for losses, own in zip(lists, kept, strict=True):
            losses[:] = own

    with around_turns(leave, come_back):
        yield


def _refuse_draws(strategy: tf.distribute.Strategy, first: int) -> None:
    graph = tf.compat.v1.get_default_graph()
    inside = {place for start, stop in _INSIDE.value for place in range(start, stop)}
    walk = ReplicaWalk(strategy)
    for place, op in enumerate(graph.get_operations()):
        if place < first or place in inside:
            continue
        for each in (op, *(inner for body in walk.bodies(op, Frame(graph)) for inner, *_ in walk.operations(body))):
            if each.type in DRAWS_FROM_STATE:
                raise DrawsBesideError(
                    "Nor can every replica compute the step on all rows: it draws random numbers between the calls of "
                    f"its layers ({each.name!r} of type {each.type}), which would be others on every replica. With "
                    "keras.random and a keras.random.SeedGenerator of the model's own they are the same on all, and it "
                    "trains as it stands."
                )


def sum_over_parts(slope: Any, share: Share, times: Callable[[Any, Any], Any]) -> Any:
    """The slope of all rows at a variable, given what came back to one read of it.

    Args:
        slope: Tensor or `tf.IndexedSlices`.
        share: In which the variable was read: a part in a divided call; all rows elsewhere, where every replica has
            computed the same.
        times: Multiplies a slope.
    """
    whole = _WHOLE.value or share
    is_part = share.num_replicas > 1
    factor = share.is_counted(tf.float64) if is_part else tf.constant(1 / whole.num_replicas, tf.float64)
    with in_share(whole):
        return all_reduce_sum([times(slope, factor)])[0]


def _call(call: Callable[..., Any], is_divided: bool, is_known: bool, *args: Any, **kwargs: Any) -> Any:
    whole, share = _WHOLE.value, current_share()
    if not is_divided or whole is None or share is None or share.num_replicas > 1:
        return call(*args, **kwargs)
    if around_conditions(tf.compat.v1.get_default_graph(), step_graph()) is not None:
        # The slopes of what it takes and gives could not be sent in the gradient of a condition.
        return call(*args, **kwargs)
    leaves = keras.tree.flatten((args, kwargs))
    rows = [leaf for leaf in leaves if _has_rows(leaf)]
    if not rows or (is_known and any(map(_may_have_rows, leaves))):
        return call(*args, **kwargs)
    total = tf.shape(rows[0], out_type=tf.int64)[0]
    part = _part(whole, total)
    args, kwargs = keras.tree.map_structure(lambda leaf: _take(leaf, part) if _has_rows(leaf) else leaf, (args, kwargs))
    mark_own([leaf for leaf in keras.tree.flatten((args, kwargs)) if _has_rows(leaf)])
    first = num_operations()
    with in_share(part):
        outputs = call(*args, **kwargs)
        _INSIDE.value.append((first, num_operations()))
        return keras.tree.map_structure(lambda leaf: _all_of(leaf, part) if _has_rows(leaf) else leaf, outputs)


def _has_rows(leaf: Any) -> bool:
    # The number of rows is open in what was gathered, and in what is made of it.
    return isinstance(leaf, tf.Tensor) and leaf.shape.rank not in (None, 0) and leaf.shape[0] is None


def _may_have_rows(leaf: Any) -> bool:
    # A step that writes down its batch size (`normal((batch_size, 8))`) makes rows of a known number. Keras's own
    # layers join them with others; a layer of the user's may have a table beside its rows.
    return isinstance(leaf, tf.Tensor) and bool(leaf.shape.rank) and (leaf.shape[0] or 1) > 1


def _part(whole: Share, total: tf.Tensor) -> Share:
    """This replica's part of so many rows, which need not be those of the batch: true and false ones together, say."""
    replica, replicas = tf.cast(replica_number(), tf.int64), whole.num_replicas
    start, stop = total * replica // replicas, total * (replica + 1) // replicas
    counts = tf.cast(stop - start, tf.float32), tf.cast(total, tf.float32)
    return whole._replace(
        num_examples=counts[0],
        global_examples=counts[1],
        weight=part_of(*counts),
        first_row=start,
        weights_gradients=False,
        rows_known=False,
        logged_per_example=1.0,
        denominators=None,
    )


def _take(rows: Any, part: Share) -> Any:
    """The rows of a part, or a stand-in for none; all of them get their slopes."""
    total = tf.shape(rows, out_type=tf.int64)[0]
    count = tf.cast(part.num_examples, tf.int64)
    bounds = with_stand_in(part.first_row, part.first_row + count, total)
    same = tf.debugging.assert_equal(
        total, tf.cast(part.global_examples, tf.int64), "Inputs of one layer have different numbers of rows."
    )
    with tf.control_dependencies([same] if same is not None else []):
        rows = tf.identity(rows)
    return _sliced(rows, *bounds, part) if rows.dtype.is_floating else rows[bounds[0] : bounds[1]]


def _all_of(rows: Any, part: Share) -> Any:
    return with_attached(rows, lambda own: _together(own, part))


def _together(rows: Any, part: Share) -> Any:
    """The rows of all parts; each gets its own slopes."""
    counted = tf.cast(part.num_examples > 0, tf.int64)
    own = rows[: tf.shape(rows, out_type=tf.int64)[0] * counted]
    if not rows.dtype.is_floating:
        return all_gather(own)
    size = tf.shape(own, out_type=tf.int64)[0]
    # There may be several for each row that went in.
    first = part.first_row * size // tf.maximum(tf.cast(part.num_examples, tf.int64), 1)
    return _joined(own, first, part)


def _sliced(whole: Any, first: Any, end: Any, part: Share) -> Any:
    """Rows of what every replica has; the slopes of all parts are every replica's.

    `_joined` is that the other way round. Each is the other's slope: penalties of gradients take slopes of slopes.
    """
    count = tf.cast(part.num_examples, tf.int64)

    @tf.custom_gradient
    def sliced(whole: Any) -> Any:
        rows = whole[first:end]
        # On the way back slopes are: a layer may limit them.
        mark_own([rows])
        # What stands in for no rows has slopes that count for nothing.
        return rows, lambda slope: _joined(slope[: (end - first) * tf.cast(count > 0, tf.int64)], first, part)

    return sliced(whole)


def _joined(own: Any, first: Any, part: Share) -> Any:
    """The rows of all parts, equal on every replica, of which this one's begin at `first`."""
    size = tf.shape(own, out_type=tf.int64)[0]

    @tf.custom_gradient
    def joined(own: Any) -> Any:
        with in_share(part):
            rows = all_gather(own)
        return rows, lambda slope: _sliced(slope, first, first + size, part)

    return joined(own)
