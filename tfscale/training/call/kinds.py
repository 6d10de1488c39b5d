"""Of which kind are the data of a call, and what runs the steps for them?

Keras has one function for all that a model is trained on, and TensorFlow traces it anew for data of another kind: with
weights of the examples where there were none, labels of another rank. There a step of the user's own may take another
branch of its Python code. So that is another step here: nothing is known of it yet, and its first one is looked at.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfscale.data.peeking import PeekedBatches
from tfscale.training.call.looks import Look

_NOT_DENSE = (tf.SparseTensor, tf.SparseTensorSpec, tf.RaggedTensor, tf.RaggedTensorSpec)


def kind_of(data: Any) -> str:
    """Which parts a batch has, each with its type and rank. Sizes may change from batch to batch.

    Args:
        data: A batch, or a structure of specs of one.

    Example:
        >>> import numpy as np
        >>> from tfscale.training.call.kinds import kind_of
        >>> x, y = np.zeros((8, 3), "float32"), np.zeros(8, "int32")
        >>> kind_of((x, y)) == kind_of((x[:5, :2], y[:5])), kind_of((x, y)) == kind_of((x, y, y))
        (True, False)
    """
    return repr(tf.nest.map_structure(_kind_of_leaf, data))


def _kind_of_leaf(leaf: Any) -> str:
    if not hasattr(leaf, "dtype"):
        parts = tf.nest.flatten(leaf, expand_composites=True)
        # What TensorFlow distributed has its parts alike.
        leaf = parts[0] if parts else leaf
    if not hasattr(leaf, "dtype"):
        return type(leaf).__name__
    form = type(leaf).__name__.removesuffix("Spec") if isinstance(leaf, _NOT_DENSE) else "Tensor"
    return f"{form} of {tf.as_dtype(leaf.dtype).name}, rank {tf.TensorShape(leaf.shape).rank}"


def by_kind(
    look: Look | None, of_kind: Callable[[Look | None], Callable[[Any], Any]], look_anew: Callable[[], Look | None]
) -> Callable[[Any], Any]:
    """A function of Keras's that runs steps: where there is anything to look at, another one for data of each kind.

    Args:
        look: What looks at the data that come first, or None.
        of_kind: Makes the function for data of one kind, and what looks at them.
        look_anew: Makes what looks at data of another kind.
    """
    first = of_kind(look)
    return first if look is None else _ByKind(first, lambda: of_kind(look_anew()))


class _ByKind:
    """As `by_kind`.

    Args:
        first: For data of the kind that comes first.
        anew: Makes one for another kind.
    """

    def __init__(self, first: Callable[[Any], Any], anew: Callable[[], Callable[[Any], Any]]):
        self._first, self._anew = first, anew
        self._functions: dict[str, Callable[[Any], Any]] = {}
        # Of the iterator at hand, whose batches are of one kind.
        self._iterator: Callable[[], Any] = lambda: None
        self._function = first

    def __call__(self, data: Any) -> Any:
        """Runs it on an iterator of `tf.data`, or on the batches of any other iterable."""
        iterator = data.iterator if isinstance(data, PeekedBatches) else data
        if not isinstance(iterator, tf.data.Iterator | tf.distribute.DistributedIterator):
            batches = list(data)
            return self._of_kind(kind_of(batches[0]) if batches else "")(batches)
        if self._iterator() is not iterator:
            self._iterator = weakref.ref(iterator)
            self._function = self._of_kind(kind_of(iterator.element_spec))
        return self._function(data)

    def _of_kind(self, kind: str) -> Callable[[Any], Any]:
        if kind not in self._functions:
            self._functions[kind] = self._anew() if self._functions else self._first
        return self._functions[kind]
