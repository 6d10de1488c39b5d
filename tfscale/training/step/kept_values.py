"""How is a value of Python, with all that is in it, put back to what it was?

Numbers, texts and tensors are what they are; lists, dicts, sets, deques and arrays change in place. What holds
something that was made meanwhile, such as a list with a new layer, is left: it is not made again.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

CONTAINERS = (list, dict, set, deque)
"""What changes in itself, and holds anything."""
_MADE = (keras.Variable, keras.Operation, keras.losses.Loss, keras.metrics.Metric, keras.optimizers.Optimizer)
_MADE_OF_TENSORFLOW = (tf.Variable, tf.Module)


def is_made(value: Any) -> bool:
    """Whether it is something that a step makes once, and keeps: a layer, a variable, an optimizer ...

    Example:
        >>> import keras
        >>> is_made(keras.layers.Dense(1)), is_made([1])
        (True, False)
    """
    return isinstance(value, (*_MADE, *_MADE_OF_TENSORFLOW))


def holds_made(value: Any) -> bool:
    """Whether a container has any such thing in it.

    Example:
        >>> import keras
        >>> holds_made({"a": [keras.Variable(1.0)]}), holds_made([1])
        (True, False)
    """
    return any(map(is_made, _leaves(value)))


def holds_symbols(value: Any) -> bool:
    """Whether a container has any tensor in it that is a symbol of a graph.

    Example:
        >>> seen = []
        >>> _ = tf.function(lambda x: seen.append(x)).get_concrete_function(tf.TensorSpec([]))
        >>> holds_symbols(seen), holds_symbols([tf.constant(1.0)])
        (True, False)
    """
    return isinstance(value, CONTAINERS) and any(map(tf.is_symbolic_tensor, _leaves(value)))


def is_plain(value: Any) -> bool:
    """Whether it is a value by itself, or a container of anything.

    Example:
        >>> is_plain(1.0), is_plain([1]), is_plain(None), is_plain(print)
        (True, True, False, False)
    """
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    scalars = (bool, int, float, complex, str, bytes, np.generic, np.ndarray)
    return isinstance(value, (*scalars, *CONTAINERS)) or (tf.is_tensor(value) and not isinstance(value, tf.Variable))


def restorer(value: Any) -> Callable[[], None]:
    """A function that gives a container, or an array, and all that is in it what they hold now.

    Args:
        value: Anything; what does not change in place needs nothing.

    Example:
        >>> seen = {"rows": [1, 2]}
        >>> put_back = restorer(seen)
        >>> seen["rows"].append(3); seen["more"] = 1
        >>> put_back()
        >>> seen
        {'rows': [1, 2]}
    """
    parts = list(_restorers(value, set()))

    def put_back() -> None:
        for part in parts:
            part()

    return put_back


def _restorers(value: Any, known: set[int]) -> Iterator[Callable[[], None]]:
    if isinstance(value, np.ndarray):
        yield _array_restorer(value)
    if not isinstance(value, CONTAINERS) or id(value) in known:
        return
    known.add(id(value))
    yield _container_restorer(value)
    for each in value.values() if isinstance(value, dict) else value:
        # Most hold numbers, of which there may be many.
        if isinstance(each, (*CONTAINERS, np.ndarray)):
            yield from _restorers(each, known)


def _array_restorer(array: np.ndarray) -> Callable[[], None]:
    held = array.copy()

    def put_back() -> None:
        if array.shape == held.shape and array.flags.writeable:
            np.copyto(array, held)

    return put_back


def _container_restorer(container: Any) -> Callable[[], None]:
    held = _contents(container)

    def put_back() -> None:
        now = _contents(container)
        if len(now) == len(held) and all(map(operator.is_, now, held)):
            return
        before = set(map(id, held))
        if any(is_made(each) and id(each) not in before for each in now):
            return
        _fill(container, held)

    return put_back


def _fill(container: Any, contents: list[Any]) -> None:
    if isinstance(container, list):
        container[:] = contents
        return
    # Methods of Keras's own dicts and sets take account of layers, and make lists of their own of what they are given.
    kind: Any = next((kind for kind in (dict, set) if issubclass(type(container), kind)), type(container))
    kind.clear(container)
    if isinstance(container, dict):
        kind.update(container, zip(contents[::2], contents[1::2], strict=True))
    elif isinstance(container, set):
        kind.update(container, contents)
    else:
        container.extend(contents)


def _contents(container: Any) -> list[Any]:
    """Of a dict: its keys and values in turn."""
    if isinstance(container, dict):
        return [each for pair in container.items() for each in pair]
    return list(container)


def numbers_in(value: Any) -> np.ndarray | None:
    """All numbers in a value, one after the other; None where it holds none.

    Example:
        >>> numbers_in({"a": [1, 2.0], "b": "text"})
        array([1., 2.])
        >>> numbers_in(True)
        array(1.)
    """
    if not isinstance(value, (*CONTAINERS, tuple)):
        return _number(value)
    found = [number for each in _leaves(value) if (number := _number(each)) is not None]
    return np.concatenate([np.ravel(each) for each in found]) if found else np.zeros(0)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (*CONTAINERS, tuple)):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _number(value: Any) -> np.ndarray | None:
    if tf.is_tensor(value):
        if not isinstance(value, tf.Tensor) or not hasattr(value, "numpy"):
            return None
        value = value.numpy()
    if isinstance(value, bool | int | float | np.generic | np.ndarray):
        array = np.asarray(value)
        return array.astype(np.float64) if array.dtype.kind in "biuf" else None
    return None
