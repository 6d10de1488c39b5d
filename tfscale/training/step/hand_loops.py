"""What becomes of a function that a loop by hand gives to `strategy.run`?

Its losses are parts of a sum, as TensorFlow's guides have it: each replica divides by the number of examples in the
batch, or by the number of replicas. An optimizer gets the sum, and clips, accumulates and updates as on one device.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfscale.errors import DataError, ModelError, TfscaleError
from tfscale.exact.metrics import meet_updates
from tfscale.exact.numbers_of_loops import mark_numbers
from tfscale.exact.randomness import leaving_rows_open, separate_random_streams
from tfscale.exact.terms import noting_sums
from tfscale.gradients.optimizers import reduce_gradients_once
from tfscale.replicas.all_reduce import all_reduce_sum
from tfscale.replicas.batch_rows import leaves_of, plan_rows
from tfscale.replicas.made import made_under
from tfscale.replicas.marks import mark_own
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.replica_batch import ReplicaBatch, local_replicas, num_rows, of_replica
from tfscale.replicas.replica_count import LoopRows, in_loop, noting_asks
from tfscale.training.step.rehearsal import rehearse

_log = logging.getLogger(__name__)

_SEVERAL_PARTS = (
    "In a function of `strategy.run` that is given batches of several data sets, and another part of each, the number "
    "of replicas does not tell which is meant. Give `tf.nn.compute_average_loss(loss, global_batch_size=...)` the size "
    "of the batch that the losses are of, and losses of Keras's `reduction=None`."
)

_REHEARSED = Fact["weakref.WeakSet[Any]"](ReplicaGroup, "rehearsed", lambda functions: f"{len(functions)} functions")

# Codes of functions that ask how many replicas there are, for which workers count the rows of all.
_ASK_FOR_ROWS = Fact[set[Any]](ReplicaGroup, "functions_that_ask_for_rows", lambda codes: f"{len(codes)} functions")


def prepare_function(
    strategy: tf.distribute.Strategy, given: Any, function: Any, args: Any, kwargs: Any
) -> Callable[..., Any]:
    """Prepares what a function of a loop by hand uses; returns what is to be run in its place.

    Args:
        strategy: Whose replicas run it.
        given: To `strategy.run`.
        function: That, rewritten by AutoGraph where it rewrites.
        args: As given to `strategy.run`, with the values of all replicas.
        kwargs: Likewise.
    """
    if not tf.executing_eagerly():
        _make_what_is_missing(strategy, given, function, args, kwargs)
    made = made_under(strategy)
    for optimizer in made.optimizers:
        reduce_gradients_once(optimizer)
    meet_updates(made.metrics)
    asking = _ASK_FOR_ROWS.ensure(strategy, set())
    counts_first = code_of(given) in asking

    def total_of(places: Sequence[int], own: Sequence[Any]) -> Any:
        if tf.executing_eagerly():
            # Nothing is rehearsed there: from the next step on.
            asking.add(code_of(given))
        return _total_rows(strategy, (args, kwargs), places, own)

    are_own = _are_own(strategy, args, kwargs)

    @tf.autograph.experimental.do_not_convert
    def on_replica(*own_args: Any, **own_kwargs: Any) -> Any:
        if not tf.executing_eagerly():
            own_args, own_kwargs = _changed((own_args, own_kwargs), are_own, _marked)
        rows = _rows(own_args, own_kwargs, are_own, total_of)
        if rows is not None and counts_first:
            rows = _counted(rows)
        with _naming_no_rows(rows), in_loop(rows), noting_sums():
            results = function(*own_args, **own_kwargs)
            mark_numbers(results)
            return results

    return on_replica


def _make_what_is_missing(strategy: tf.distribute.Strategy, given: Any, function: Any, args: Any, kwargs: Any) -> None:
    """Rehearses a step of a loop by hand, once: replicas could not make variables inside of it.

    Optimizers may have no slots yet, metrics and layers no variables; of those nothing tells before they are used.
    """
    rehearsed, known = _REHEARSED.ensure(strategy, weakref.WeakSet()), _ASK_FOR_ROWS.ensure(strategy, set())
    # What is called need not be a function, nor one that can be referred to.
    with contextlib.suppress(TypeError):
        if given in rehearsed:
            return
        rehearsed.add(given)
    own = tf.nest.map_structure(_with_a_row, of_replica(strategy, (args, kwargs), 0))
    are_own = _are_own(strategy, args, kwargs)
    # A rehearsal tells what they draw.
    separate_random_streams(strategy)

    def alone(_: Any, *, of_any_rows: bool) -> None:
        own_args, own_kwargs = _changed(own, are_own, _with_open_rows) if of_any_rows else own
        with leaving_rows_open(of_any_rows), noting_asks() as asks:
            function(*own_args, **own_kwargs)
        if asks:
            known.add(code_of(given))

    # What a replica draws for the whole batch shows where its rows are any number, which not every step can take.
    for of_any_rows in (True, False):
        try:
            rehearse(strategy, functools.partial(alone, of_any_rows=of_any_rows), ())
            return
        except Exception as error:  # What is wrong with the user's step will show where it is run.
            _log.debug("the step of a loop by hand could not be rehearsed: %s", error)


def _changed(arguments: Any, are_own: Sequence[bool], change: Callable[[Any], Any]) -> Any:
    """What a loop by hand gives to one replica, of which its own rows are changed.

    Args:
        arguments: Of the replica.
        are_own: Of each leaf, whether others have others.
        change: To be called with those.
    """
    leaves = zip(tf.nest.flatten(arguments), are_own, strict=True)
    return tf.nest.pack_sequence_as(arguments, [change(leaf) if is_own else leaf for leaf, is_own in leaves])


def _with_open_rows(leaf: Any) -> Any:
    """In a graph, a leaf whose shape does not tell how many rows it has."""
    is_tensor = tf.is_tensor(leaf) and not isinstance(leaf, tf.Variable)
    if not is_tensor or not leaf.shape.rank:
        return leaf
    return tf.compat.v1.placeholder_with_default(leaf, [None, *leaf.shape[1:]])


def _with_a_row(value: Any) -> Any:
    """A tensor, or one of a row in the place of one of none: what it asks there, it asks where it has some."""
    is_empty = tf.is_tensor(value) and not isinstance(value, tf.Variable) and value.shape.rank and value.shape[0] == 0
    return tf.zeros([1, *value.shape[1:]], value.dtype) if is_empty and value.shape[1:].is_fully_defined() else value


def _marked(leaf: Any) -> Any:
    """A leaf that is marked as a replica's own."""
    own = tf.identity(leaf) if tf.is_tensor(leaf) and _has_no_place(leaf) else leaf
    mark_own(own)
    return own


def _has_no_place(tensor: Any) -> bool:
    """Whether a tensor is one that the graph around has captured or was given as it is.

    The former belongs to no graph that could say whose it is. The latter is on no device, from which TensorFlow
    gathers nothing on workers.
    """
    is_data = tensor.dtype not in (tf.resource, tf.variant)
    return not tf.is_symbolic_tensor(tensor) or (is_data and not tensor.device)


def _is_of_replicas(value: Any) -> bool:
    return isinstance(value, tf.distribute.DistributedValues) and not isinstance(value, tf.Variable)


def rows_here(strategy: tf.distribute.Strategy, args: Any, kwargs: Any) -> list[list[Any]]:
    """How many rows each replica of this process holds, of each batch of another size that it is given.

    Nothing for one whose arguments do not tell.

    Args:
        strategy: Whose replicas they are.
        args: As given to `strategy.run`, with the values of all replicas.
        kwargs: Likewise.
    """
    are_own = _are_own(strategy, args, kwargs)
    found = []
    for index in range(local_replicas(strategy).here):
        own_args, own_kwargs = of_replica(strategy, (args, kwargs), index)
        rows = [*_rows_by_place(own_args, own_kwargs, are_own).values()]
        # Of any number of rows all have as many, as far as anybody knows.
        is_known = all(isinstance(each, int) for each in rows)
        found.append([*dict.fromkeys(rows)] if is_known else rows[:1])
    return found


def _are_own(strategy: tf.distribute.Strategy, args: Any, kwargs: Any) -> list[bool]:
    """Of each leaf that a replica gets, of which a value may have several: whether others have others."""
    leaves = tf.nest.flatten((args, kwargs))
    return [_is_of_replicas(each) for each in leaves for _ in tf.nest.flatten(of_replica(strategy, each, 0))]


def _rows(
    own_args: Any, own_kwargs: Any, are_own: Sequence[bool], total_of: Callable[[Sequence[int], Sequence[Any]], Any]
) -> LoopRows | None:
    """What this replica holds, as far as its arguments tell."""
    found = _rows_by_place(own_args, own_kwargs, are_own)
    if not found:
        return None
    own = [*found.values()]
    are_several = len({each for each in own if isinstance(each, int)}) > 1
    return LoopRows(own[0], functools.partial(total_of, [*found], own), are_several)


@contextlib.contextmanager
def _naming_no_rows(rows: LoopRows | None) -> Iterator[None]:
    """Says of an error in a function of the user's that the replica has no rows, if that is so."""
    try:
        yield
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        is_empty = rows is not None and isinstance(rows.own, int) and rows.own == 0
        if not is_empty or isinstance(error, TfscaleError):
            raise
        raise DataError(
            "A function of `strategy.run` must take a batch of which a replica has no rows, as of a last one.\n"
            f"Received: no rows, and {type(error).__name__}: {str(error).strip().splitlines()[-1].strip()} A loss of "
            "Keras's is a vector of none there, and no number: make it with `reduction=None`, for "
            "`tf.nn.compute_average_loss(...)`; or leave such a batch out (`batch(..., drop_remainder=True)`)."
        ) from error


def _counted(rows: LoopRows) -> LoopRows:
    """Rows of which all workers count those of all at the same place, before anything else is sent.

    One that has none does not come to ask: Keras's losses take no mean of none. And what asks in a loop could not send.
    """
    total = rows.total()
    return rows._replace(total=lambda: total)


def code_of(function: Any) -> Any:
    """What a function runs, whatever it is bound to: a step that is made anew for each trace is the same one."""
    if isinstance(function, functools.partial):
        return code_of(function.func)
    function = getattr(function, "python_function", function)
    return getattr(function, "__code__", type(function))


def _rows_by_place(own_args: Any, own_kwargs: Any, are_own: Sequence[bool]) -> dict[int, Any]:
    """Which leaves of a replica's arguments have rows, and how many; first the one that tells for all."""
    for argument in (*own_args, *own_kwargs.values()):
        if isinstance(argument, ReplicaBatch):
            return {}
    leaves = tf.nest.flatten((own_args, own_kwargs))
    places = [place for place, leaf in enumerate(leaves) if tf.is_tensor(leaf) and leaf.shape.rank != 0]
    if not places:
        return {}
    try:
        plan = plan_rows(leaves_of([leaves[place] for place in places]))
        places = [places[index] for index in (plan.reference, *plan.equal)]
    except DataError:
        # Batches of several data sets, of which each replica has its own rows.
        places = [place for place in places if are_own[place]]
    return {place: num_rows(leaves[place]) for place in places}


def _total_rows(strategy: tf.distribute.Strategy, arguments: Any, places: Sequence[int], own: Sequence[Any]) -> Any:
    """The rows of all replicas, of which this process may know all, in the first place.

    Raises:
        ModelError: When a replica's part of these is another one than in the other places.
    """
    replicas, given = local_replicas(strategy), tf.nest.flatten(arguments)
    if replicas.on_several_workers:
        totals = [tf.cast(each, tf.int64) for each in all_reduce_sum([tf.cast(each, tf.float32) for each in own])]
        return _of_same_parts(own, totals)
    values = [strategy.experimental_local_results(given[place]) for place in places]
    rows = [[num_rows(value) for value in each] for each in values]
    totals = [
        sum(each) if len(each) == replicas.total else first * replicas.total
        for each, first in zip(rows, own, strict=True)
    ]
    return _of_same_parts(own, totals)


def _of_same_parts(own: Sequence[Any], totals: Sequence[Any]) -> Any:
    """The first of the totals, of which a replica has the same part as of the others.

    Raises:
        ModelError: When it has not; where the graph does not tell, that ends its run.
    """
    first, whole = own[0], totals[0]
    for each, total in zip(own[1:], totals[1:], strict=True):
        if all(isinstance(number, int) for number in (first, whole, each, total)):
            if each * whole != first * total:
                raise ModelError(f"{_SEVERAL_PARTS}\nReceived: {first} of {whole} rows, and {each} of {total}.")
        elif each is not first:
            numbers = [tf.cast(number, tf.int64) for number in (first, whole, each, total)]
            same = tf.equal(numbers[2] * numbers[1], numbers[0] * numbers[3])
            with tf.control_dependencies([tf.debugging.Assert(same, [_SEVERAL_PARTS, *numbers])]):
                whole = tf.identity(whole)
    return whole
