"""How are tensors summed over all replicas, in as few collectives as possible?

The building blocks of the exact step, usable in a custom training loop as well.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.framework.collectives import type_of_sums, type_on_the_wire
from tfscale.framework.one_trace import NotAlikeError, one_trace
from tfscale.framework.replicas import gather_alike
from tfscale.replicas.copied_ahead import on_gpus
from tfscale.replicas.gathering import gather_in_graph
from tfscale.replicas.marks import mark_equal
from tfscale.replicas.own_functions import refuse_to_send_from_function
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.packs import (
    Packing,
    cut,
    divide_into_packs,
    finishing_order,
    is_sparse,
    joined,
    put_together,
    size_bytes,
    taken_apart,
)
from tfscale.replicas.progress import current_progress
from tfscale.replicas.share import is_in_eager_step, num_replicas
from tfscale.replicas.sparse import merge_equal_rows
from tfscale.replicas.xla import refuse_collectives_inside_xla
from tfscale.step_context import Flag


class _Settings(NamedTuple):
    """How the replicas of one strategy communicate."""

    options: Any = None
    packing: Packing = Packing(bytes_per_pack=0)

    @property
    def alone_bytes(self) -> int:
        """Of a tensor that has a collective of its own, between the replicas of the context; 0 for none."""
        return self.packing.alone_bytes * num_replicas()


COMMUNICATION = Fact[_Settings](ReplicaGroup, "communication", lambda settings: settings.packing)


def set_communication_options(strategy: tf.distribute.Strategy, options: Any, packing: Packing) -> None:
    """Remembers how the replicas of `strategy` communicate; TensorFlow takes much of it only per call.

    Args:
        strategy: Of several replicas, or of one, which sends nothing.
        options: `tf.distribute.experimental.CommunicationOptions`, or None.
        packing: What travels together.
    """
    COMMUNICATION.set(strategy, _Settings(options, packing))


_READY = Flag("all_are_ready")
_COMPARES_SIZES = Flag("compares_sizes")


def all_are_ready() -> contextlib.AbstractContextManager[None]:
    """Says that what this thread sums meanwhile waits for nothing: it may travel in large packs."""
    return _READY.raised()


def replica_id() -> int:
    """Index of the replica in whose context this is called, among all replicas of the job; known while tracing."""
    if one_trace() is not None:
        raise NotAlikeError("it asks for the number of its replica")
    return int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))


def replica_number() -> int | tf.Tensor:
    """As `replica_id`; a tensor where the step is traced for several replicas at once."""
    if one_trace() is None:
        return replica_id()
    number: tf.Tensor = tf.distribute.get_replica_context().replica_id_in_sync_group
    return number


def all_reduce_sum(tensors: Sequence[Any]) -> list[Any]:
    """Sums each tensor over all replicas, all of them in one collective, or in the strategy's packs.

    To be called by every replica, inside `strategy.run`, with the same number of tensors of the same shapes, made by
    the same operations: a replica that has nothing to add multiplies by zero. Floating-point tensors narrower than 32
    bits are summed in float32. float64 and integer tensors take one more collective per dtype, sparse gradients
    (`tf.IndexedSlices`) two each and one for all of them: they are gathered, and their rows are summed only where they
    are the same for every batch.

    Args:
        tensors: Tensors of any shape, `tf.IndexedSlices` or None.

    Returns:
        The sums in the same order and dtypes; None where None was given.

    Example:
        >>> import tensorflow as tf, tfscale
        >>> from tfscale.replicas.all_reduce import all_reduce_sum
        >>> strategy = tfscale.make_strategy(devices=1)
        >>> total, = strategy.run(lambda: all_reduce_sum([tf.constant(3.0)]))
        >>> float(total)
        3.0
    """
    if num_replicas() == 1:
        return list(tensors)
    summed = sum_as_they_are([None if tensor is None else widened(tensor) for tensor in tensors])
    return [
        None if tensor is None else _cast(value, tensor.dtype) for tensor, value in zip(tensors, summed, strict=True)
    ]


def sum_as_they_are(tensors: Sequence[Any]) -> list[Any]:
    """As `all_reduce_sum`, each tensor in its own dtype, however narrow: the sum is rounded to that at every hop.

    What collectives do not add, such as bfloat16 on GPUs, travels in the next type that holds it.
    """
    context = tf.distribute.get_replica_context()
    if num_replicas() == 1 or all(tensor is None for tensor in tensors):
        return list(tensors)
    _refuse_to_send_here()
    settings = COMMUNICATION.of(context.strategy, _Settings())
    given, are_gpus = tensors, on_gpus(context.strategy)
    tensors = [None if each is None else _cast(each, type_of_sums(each.dtype, on_gpus=are_gpus)) for each in given]
    results: list[Any] = list(tensors)
    progress = current_progress()
    if progress is not None:
        progress.arrive(results)
    for indices in _by_dtype(tensors).values():
        sizes = [size_bytes(tensors[index]) for index in indices]
        bytes_per_pack = settings.packing.pack_size(sum(sizes), are_ready=_READY.is_raised)
        if bytes_per_pack or 0 < settings.alone_bytes <= max(sizes):
            indices = [indices[position] for position in finishing_order([tensors[index] for index in indices])]
        pieces = [cut(tensors[index], bytes_per_pack) for index in indices]
        received = iter(_sum_in_packs(list(itertools.chain(*pieces)), bytes_per_pack, settings))
        for index, parts in zip(indices, pieces, strict=True):
            whole = put_together([next(received) for _ in parts], tensors[index])
            results[index] = merge_equal_rows(whole, tensors[index])
    if progress is not None:
        progress.leave(results)
    results = [None if own is None else _cast(each, own.dtype) for each, own in zip(results, given, strict=True)]
    mark_equal(results)
    return results


def _refuse_to_send_here() -> None:
    refuse_collectives_inside_xla()
    refuse_to_send_from_function(is_in_eager_step())


def _sum_in_packs(tensors: Sequence[Any], bytes_per_pack: int, settings: _Settings) -> list[Any]:
    """Sums tensors of one dtype. TensorFlow starts the collectives of a replica one by one, as they are traced."""
    sums: list[Any] = list(tensors)
    sizes = [size_bytes(tensor) for tensor in tensors]
    for positions in divide_into_packs(sizes, bytes_per_pack, settings.alone_bytes):
        received = _sum_pack([tensors[position] for position in positions], settings.options)
        for position, total in zip(positions, received, strict=True):
            sums[position] = total
    return sums


def _sum_pack(pack: Sequence[Any], options: Any) -> list[Any]:
    """Sums tensors of one dtype, the dense ones in one collective."""
    context = tf.distribute.get_replica_context()
    if tf.executing_eagerly():
        return list(context.all_reduce(tf.distribute.ReduceOp.SUM, pack, options))
    # From the last on, as TensorFlow joins them: on three replicas and more the order is in the last bit of a sum.
    dense = [place for place in reversed(range(len(pack))) if not is_sparse(pack[place])]
    sparse = [place for place in range(len(pack)) if is_sparse(pack[place])]
    sums: dict[int, Any] = {}
    if dense:
        parts = [pack[place] for place in dense]
        (total,) = context.all_reduce(tf.distribute.ReduceOp.SUM, [joined(parts)], options)
        sums |= zip(dense, taken_apart(total, parts), strict=True)
    if sparse:
        sums |= zip(sparse, _gather_slices([pack[place] for place in sparse], options), strict=True)
    return [sums[place] for place in range(len(pack))]


def _gather_slices(gradients: Sequence[tf.IndexedSlices], options: Any) -> list[tf.IndexedSlices]:
    groups = gather_in_graph([[each.values, each.indices] for each in gradients], options)
    for own, (values, _) in zip(gradients, groups, strict=True):
        values.set_shape([None, *own.values.shape[1:]])
    return [
        tf.IndexedSlices(values, indices, own.dense_shape)
        for own, (values, indices) in zip(gradients, groups, strict=True)
    ]


def _by_dtype(tensors: Sequence[Any]) -> dict[tf.DType, list[int]]:
    """Groups positions by dtype; one collective carries one dtype."""
    groups: dict[tf.DType, list[int]] = {}
    for index, tensor in enumerate(tensors):
        if tensor is not None:
            groups.setdefault(tensor.dtype, []).append(index)
    return groups


def widened(tensor: Any) -> Any:
    """The tensor, in float32 if its own floating-point numbers are narrower."""
    return _cast(tensor, tf.float32 if tensor.dtype.is_floating and tensor.dtype.size < 4 else tensor.dtype)


def _cast(value: Any, dtype: tf.DType) -> Any:
    return value if value.dtype == dtype else tf.cast(value, dtype)


def all_gather(rows: tf.Tensor) -> tf.Tensor:
    """The rows of all replicas, in the order of the replicas.

    Args:
        rows: Tensor `[n_i, ...]`, of numbers, truth values or strings; the number of rows may differ between replicas,
            and be 0.

    Returns:
        Tensor `[sum of n_i, ...]`, equal on all replicas.
    """
    context = tf.distribute.get_replica_context()
    if num_replicas() == 1:
        return rows
    if rows.dtype == tf.string:
        return _gather_texts(rows)
    _refuse_to_send_here()
    rows = rows if rows.shape.rank is not None else _of_one_rank(rows)
    if _COMPARES_SIZES.is_raised and tf.executing_eagerly():
        rows = _as_others_eagerly(context, rows)
    elif _COMPARES_SIZES.is_raised and not (rows.shape.rank is None or rows.shape[1:].is_fully_defined()):
        rows = _as_large_as_others(rows)
    wire = _cast(rows, type_on_the_wire(rows.dtype))
    progress = current_progress()
    if progress is not None:
        progress.arrive([wire])
    gathered = tf.cast(context.all_gather(wire, axis=0) if tf.executing_eagerly() else _gathered(wire), rows.dtype)
    # TensorFlow knows the rank alone, if any: what was squeezed has none. In eager mode there is nothing to be told.
    gathered.set_shape(tf.TensorShape([None]).concatenate(rows.shape[1:]))
    if progress is not None:
        progress.leave([gathered])
    mark_equal(gathered)
    return gathered


_ANOTHER_RANK = "What is to be gathered has another rank on another replica: a `squeeze` without an axis?"


def _of_one_rank(rows: tf.Tensor) -> tf.Tensor:
    """The same rows, where all replicas have as many axes; elsewhere each ends in an error that says so.

    `tf.squeeze(x)` takes the axis of the rows away where a replica has a single one. A collective whose members have
    several shapes makes all later ones of the process fail, so their ranks are sent first.
    """
    ranks = all_gather(tf.reshape(tf.rank(rows), [1]))
    with tf.control_dependencies([tf.debugging.assert_equal(ranks, tf.rank(rows), _ANOTHER_RANK)]):
        return tf.identity(rows)


def comparing_sizes() -> contextlib.AbstractContextManager[None]:
    """Has `all_gather` fill up rows that are smaller than those of another replica, with zeros.

    So they are in a table of the rows by the rows (`tf.matmul(x, x, transpose_b=True)`), of uneven shares. Members of
    several shapes would make all later collectives of the process fail. What is looked at may be such a table: it is
    not that of one replica then, and tried in another way. A collective per call more would cost every step too much.
    """
    return _COMPARES_SIZES.raised()


def _as_large_as_others(rows: tf.Tensor) -> tf.Tensor:
    own = tf.shape(rows)[1:]
    with _COMPARES_SIZES.carrying(False):
        largest = tf.reduce_max(all_gather(own[tf.newaxis]), 0)
    # No assertion: between the turns of replicas it would be one more that others wait for.
    after = tf.concat([[0], largest - own], 0)
    filled = tf.pad(rows, tf.stack([tf.zeros_like(after), after], 1))
    filled.set_shape(rows.shape)
    return filled


def _as_others_eagerly(context: Any, rows: tf.Tensor) -> tf.Tensor:
    """As `_as_large_as_others`, where each replica runs by itself, and knows of no other's rows."""

    def shapes_here(strategy: tf.distribute.Strategy, rows: Any) -> list[tf.TensorShape]:
        return [own.shape for own in strategy.experimental_local_results(rows)]

    shapes = context.merge_call(shapes_here, args=(rows,))
    if len({shape.rank for shape in shapes}) > 1:
        raise ValueError(f"{_ANOTHER_RANK} The shapes are {', '.join(map(str, shapes))}.")
    if rows.shape.rank < 2:
        return rows
    if len(shapes) < num_replicas():
        return _as_large_as_others(rows)
    largest = [max(sizes) for sizes in zip(*(shape[1:] for shape in shapes), strict=True)]
    after = [size - own for size, own in zip(largest, rows.shape[1:], strict=True)]
    return tf.pad(rows, [[0, 0], *([0, count] for count in after)]) if any(after) else rows


def _gather_texts(rows: tf.Tensor) -> tf.Tensor:
    """As `all_gather`, of strings: their lengths travel, and their bytes, one after the other."""
    lengths = all_gather(tf.strings.length(rows))
    own = tf.io.decode_raw(tf.strings.reduce_join(tf.reshape(rows, [-1])), tf.uint8)
    letters = tf.gather(tf.constant([bytes([i]) for i in range(256)], tf.string), tf.cast(all_gather(own), tf.int32))
    words = tf.RaggedTensor.from_row_lengths(letters, tf.reshape(lengths, [-1]))
    gathered = tf.reshape(tf.strings.reduce_join(words, axis=-1), tf.shape(lengths))
    gathered.set_shape(lengths.shape)
    mark_equal(gathered)
    return gathered


@tf.custom_gradient
def _gathered(rows: tf.Tensor) -> Any:
    """As `all_gather`, in a graph. The slope of a replica's rows is the sum of what all replicas have for them."""
    options = COMMUNICATION.of(tf.distribute.get_strategy(), _Settings()).options

    def gradient(slope: tf.Tensor) -> tf.Tensor:
        (total,) = all_reduce_sum([slope])
        counts = gather_alike(tf.shape(rows)[:1], options)
        first = tf.reduce_sum(counts[: replica_number()])
        return total[first : first + tf.shape(rows)[0]]

    ((gathered,),) = gather_in_graph([[rows]], options)
    return gathered, gradient


def global_mean(local_mean: tf.Tensor, num_examples: Any) -> tf.Tensor:
    """The mean over the examples of all replicas, from each replica's own mean.

    sum_i(n_i * m_i) / sum_i(n_i), where replica i holds n_i examples with mean m_i. A replica without examples
    contributes nothing, even if its mean is NaN. The gradient of the result is not defined: reduce gradients instead.

    Args:
        local_mean: This replica's mean, a float tensor of any shape.
        num_examples: n_i, an integer or float scalar.

    Returns:
        The mean over all replicas, same shape and dtype; NaN when no replica has an example.
    """
    count = tf.cast(num_examples, local_mean.dtype)
    total = tf.where(count > 0, local_mean * count, tf.zeros_like(local_mean))
    summed, examples = all_reduce_sum([total, count])
    return summed / examples
