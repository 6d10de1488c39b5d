"""Is what is noted beside a state what a run notes, so that another one can go on from it?

The checksum says that a note is the one that was written. It may have been written by somebody else, or by
another version.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.recovery.folder import Saved
from tfscale.recovery.values import put_in_arrays

_SHOWN_CHARACTERS = 100


def check_facts(saved: Saved) -> None:
    """Looks at all that a run takes from a note.

    Args:
        saved: As it was read.

    Raises:
        ValueError: Naming the first fact that is not what it should be.
    """
    facts: Any = saved.facts
    if not isinstance(facts, dict):
        raise ValueError(f"its note is {ascii(facts)[:_SHOWN_CHARACTERS]}, and no facts by their names")
    for name, is_right in _FACTS.items():
        if name not in facts or not is_right(facts[name]):
            raise _refuse(facts, name)
    for name, is_right in _LATER_FACTS.items():
        if name in facts and not is_right(facts[name]):
            raise _refuse(facts, name)
    if facts["position"][1] and "next" in facts and facts["next"] is None:
        raise _refuse(facts, "next")
    if len(facts["rates"]) != len(facts["first_rates"]):
        raise _refuse(facts, "rates")
    if not _describe_same(facts["arrays"], saved.arrays):
        raise _refuse(facts, "arrays")
    described = [each[1] for each in facts["variables"]]
    if described != [each[0] for each in facts["arrays"][: len(described)]]:
        raise _refuse(facts, "variables")
    _check_states(facts, saved.arrays[len(described) :])


def _refuse(facts: Mapping[str, Any], name: str) -> ValueError:
    shown = f"is {ascii(facts[name])[:_SHOWN_CHARACTERS]}" if name in facts else "is missing"
    return ValueError(f"its note is not that of a run: {name!r} {shown}")


def _check_states(facts: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> None:
    """Tries what is done with them later, on generators of its own."""
    try:
        states = put_in_arrays(facts["states"], list(arrays))
        callbacks, (version, words, gauss) = states["callbacks"], states["random"]["python"]
        random.Random().setstate((version, tuple(words), gauss))
        numpy_state = states["random"]["numpy"]
        kind, own_kind = (str(state["bit_generator"]) for state in (numpy_state, np.random.get_state(legacy=False)))
        # NumPy's global generator takes states of its own kind only.
        if kind == own_kind and hasattr(np.random, kind):
            np.random.RandomState(getattr(np.random, kind)()).set_state(numpy_state)
        keras_state = states["random"]["keras"]
        is_right = isinstance(callbacks, dict) and (keras_state is None or _is_list_of(_is_count, 2)(keras_state))
        np.array(keras_state or 0, np.uint32)
    except Exception as error:
        # What it raises depends on what is wrong.
        raise _refuse(facts, "states") from error
    if not is_right:
        raise _refuse(facts, "states")
    if kind != own_kind:
        raise ValueError(
            f"its note is of a run whose global NumPy generator is a {ascii(kind)[:_SHOWN_CHARACTERS]}, and here it is "
            f"a {own_kind}: call the same `np.random.set_bit_generator` as that run"
        )


def _describe_same(described: Any, arrays: Sequence[np.ndarray]) -> bool:
    """Whether these are the shapes and types of the arrays."""
    try:
        return len(described) == len(arrays) and all(
            list(array.shape) == shape and tf.as_dtype(array.dtype) == tf.as_dtype(name)
            for (shape, name), array in zip(described, arrays, strict=True)
        )
    except (TypeError, ValueError):
        return False


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_size(value: Any) -> bool:
    return _is_count(value) and value > 0


def _is_rate(value: Any) -> bool:
    return value is None or type(value) is float or (type(value) is int and abs(value) < 2**63)


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_list_of(is_right: Callable[[Any], bool], length: int | None = None) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        return type(value) is list and (length is None or len(value) == length) and all(map(is_right, value))

    return check


def _is_tuple_of(*are_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        return (
            type(value) is list
            and len(value) == len(are_right)
            and all(is_right(each) for is_right, each in zip(are_right, value, strict=True))
        )

    return check


def _is_offset(value: Any) -> bool:
    # An optimizer may have made fewer steps before than the epochs that were left out.
    return type(value) is int and abs(value) < 2**63


def _is_batch(value: Any) -> bool:
    return value is None or _is_size(value)


def _is_data(value: Any) -> bool:
    if not isinstance(value, dict) or not _is_count(value.get("passes", 0)):
        return False
    return all(_is_tuple_of(_is_seed, _is_count)(value[name]) for name in ("training", "validation") if name in value)


def _is_seed(value: Any) -> bool:
    return value is None or _is_count(value)


def _is_digest(value: Any) -> bool:
    if not isinstance(value, dict) or not _is_list_of(_is_digest)(value.get("earlier", [])):
        return False
    return (
        _is_tuple_of(_is_count, _is_count, _is_batch)(value.get("at"))
        and _is_count(value.get("rows"))
        and _is_text(value.get("all"))
        and _is_list_of(_is_text)(value.get("first"))
    )


_FACTS: dict[str, Callable[[Any], bool]] = {
    "position": _is_list_of(_is_count, 2),
    "steps": _is_count,
    "stopped": lambda value: type(value) is bool,
    "num_replicas": _is_size,
    "global_batch": _is_batch,
    "examples_offset": _is_offset,
    "examples_seen": _is_offset,
    "first_rates": _is_list_of(_is_rate),
    "rates": _is_list_of(_is_rate),
    "data": _is_data,
    "states": lambda value: isinstance(value, dict),
    "variables": _is_list_of(_is_tuple_of(_is_text, _is_list_of(_is_count), _is_text)),
    "arrays": _is_list_of(_is_tuple_of(_is_list_of(_is_count), _is_text)),
}
# Not in the notes of every version.
_LATER_FACTS: dict[str, Callable[[Any], bool]] = {
    "run": lambda value: isinstance(value, dict),
    "bits": lambda value: isinstance(value, dict),
    "next": lambda value: value is None or _is_digest(value),
}
