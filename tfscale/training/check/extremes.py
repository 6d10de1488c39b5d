"""May a step go by the largest or smallest number of a batch, which few batches show?

`tf.maximum(x, tf.reduce_max(x) - 80)`: as long as the rows lie near each other nothing is lifted, and each replica may
as well take the largest number of its own rows. So where the graph of a step has such a number, the step is also
compared on rows that lie far apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.training.check.check_rows import CheckRows

_EXTREMES = ("Max", "Min")
# By what the first row is multiplied, and by what the others are: no program takes all of them for numbers of its own.
_APART = ((1e3, 1e-3), (1e6, 1.0), (1.0, 1e-6))


def far_apart(function: Any, rows: CheckRows) -> Iterator[CheckRows]:
    """The rows as they would be if one were much larger than the others; none where it makes no difference.

    Args:
        function: The traced step of one replica, or None where it is run eagerly.
        rows: On which it was traced.
    """
    if function is not None and takes_extremes(function.graph, rows.num_rows):
        yield from (rows.apart(first, others) for first, others in _APART)


def takes_extremes(graph: Any, num_rows: int) -> bool:
    """Whether a graph takes the largest or smallest of numbers of several rows.

    Args:
        graph: Of a function.
        num_rows: Rows of its batch.

    Example:
        >>> import tensorflow as tf
        >>> floor = tf.function(lambda x: tf.maximum(x, tf.reduce_max(x) - 8.0))
        >>> logits = tf.function(lambda x: x - tf.reduce_max(x, axis=1, keepdims=True))
        >>> rows = tf.TensorSpec([4, 3])
        >>> [takes_extremes(each.get_concrete_function(rows).graph, 4) for each in (floor, logits)]
        [True, False]
    """
    if any(op.type in _EXTREMES and _is_of_rows(op, num_rows) for op in graph.get_operations()):
        return True
    # In loops, branches and functions no shape is known.
    functions = graph.as_graph_def().library.function
    return any(_has_extremes(function.node_def) for function in functions)


def _is_of_rows(op: Any, num_rows: int) -> bool:
    numbers, axes = op.inputs[0], tf.get_static_value(op.inputs[1])
    if not numbers.dtype.is_floating or numbers.shape.rank is None:
        return bool(numbers.dtype.is_floating)
    if axes is None or numbers.shape.rank == 0 or not _has_first(np.atleast_1d(axes) % numbers.shape.rank):
        return axes is None
    size = numbers.shape[0]
    return size is None or (size > 0 and size % num_rows == 0)


def _has_extremes(nodes: Any) -> bool:
    constants = {node.name: node.attr["value"].tensor for node in nodes if node.op == "Const"}
    for node in nodes:
        if node.op in _EXTREMES and tf.dtypes.as_dtype(node.attr["T"].type).is_floating:
            axes = constants.get(node.input[1].partition(":")[0])
            if axes is None or _has_first(tf.make_ndarray(axes)):
                return True
    return False


def _has_first(axes: Any) -> bool:
    return bool(np.any(np.atleast_1d(axes) == 0))
