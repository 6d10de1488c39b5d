"""How are the outputs of the parts of a step added up, while they come one after the other?"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfscale.gradients.fixed_tree import TreeSum
from tfscale.replicas.all_reduce import all_gather
from tfscale.replicas.sparse import is_same_for_every_batch, merge_unique_rows


class OnDevice:
    """Sums over the parts of this replica, in their order.

    Args:
        outputs: Of the first part.
    """

    def __init__(self, outputs: list[Any]):
        self._first = outputs
        self._present = [place for place, output in enumerate(outputs) if output is not None]

    def begin(self, outputs: list[Any]) -> list[Any]:
        """What the loop carries, when the first part was run."""
        return [_begin(outputs[place]) for place in self._present]

    def add(self, carried: list[Any], outputs: list[Any], index: Any) -> list[Any]:
        """The same, when the part with this number was run."""
        return [_add(total, outputs[place], index) for place, total in zip(self._present, carried, strict=True)]

    def end(self, carried: list[Any]) -> list[Any]:
        """The sums, in the order of the outputs."""
        pairs = zip(self._present, carried, strict=True)
        totals = {place: _end(total, self._first[place]) for place, total in pairs}
        return [totals.get(place) for place in range(len(self._first))]


class InTree(OnDevice):
    """Sums over all logical replicas, on every device, in an order that depends on their number alone.

    Args:
        num_logical: Of the run.
        num_global: How many outputs, from the first, are so; None for all. The rest is added up on the device.
        outputs: Of the first part.
    """

    def __init__(self, num_logical: int, num_global: int | None, outputs: list[Any]):
        super().__init__(outputs)
        summed = self._present if num_global is None else [place for place in self._present if place < num_global]
        self._gathered = [place for place in summed if _is_list_of_rows(outputs[place])]
        self._summed = [place for place in summed if place not in self._gathered]
        self._present = [place for place in self._present if place not in self._summed]
        self._tree = TreeSum(num_logical, [_dense(outputs[place]) for place in self._summed])

    def begin(self, outputs: list[Any]) -> list[Any]:
        """As `OnDevice`."""
        return [self._in_tree(self._tree.begin(), outputs, 0), super().begin(outputs)]

    def _in_tree(self, carried: list[Any], outputs: list[Any], index: Any) -> list[Any]:
        return self._tree.add(carried, [_dense(outputs[place]) for place in self._summed], index)

    def add(self, carried: list[Any], outputs: list[Any], index: Any) -> list[Any]:
        """As `OnDevice`."""
        in_tree, own = carried
        return [self._in_tree(in_tree, outputs, index), super().add(own, outputs, index)]

    def end(self, carried: list[Any]) -> list[Any]:
        """As `OnDevice`."""
        in_tree, own = carried
        totals = [None] * len(self._first)
        for place, total in zip(self._present, own, strict=True):
            if place not in self._gathered:
                totals[place] = _end(total, self._first[place])
        for place, total in zip(self._summed, self._tree.end(in_tree), strict=True):
            first = self._first[place]
            is_sparse = isinstance(first, tf.IndexedSlices)
            totals[place] = tf.IndexedSlices(total, first.indices, first.dense_shape) if is_sparse else total
        for place in self._gathered:
            # Put together as they are: rows that a device merges are added up in another order where it has fewer.
            values, indices = own[self._present.index(place)]
            first = self._first[place]
            rows = tf.IndexedSlices(all_gather(values.concat()), all_gather(indices.concat()), first.dense_shape)
            totals[place] = merge_unique_rows(rows, first)
        return totals


def _begin(output: Any) -> Any:
    """What the loop carries: a sum, or lists of the values and the rows of a sparse gradient."""
    return (list_of(output.values), list_of(output.indices)) if _is_list_of_rows(output) else _dense(output)


def _is_list_of_rows(output: Any) -> bool:
    return isinstance(output, tf.IndexedSlices) and not is_same_for_every_batch(output)


def _dense(output: Any) -> Any:
    """What is added up: of a sparse gradient with the same rows in every part, their values."""
    return output.values if isinstance(output, tf.IndexedSlices) else output


def list_of(first: tf.Tensor) -> tf.TensorArray:
    """Rows of the first part, to which those of others are added."""
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
