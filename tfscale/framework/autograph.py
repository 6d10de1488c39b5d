"""Which functions does AutoGraph rewrite, where a `tf.function` of the user's own calls the library?

AutoGraph rewrites whatever such a function calls, and what that calls, unless it is TensorFlow's or Keras's. Of the
library nothing needs it, and it takes ten times as long as all the rest of a first step; the user's own step inside
does need it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

Function = TypeVar("Function", bound=Callable[..., Any])


def converted_here(function: Any) -> Any:
    """`function`, rewritten wherever it is called, if AutoGraph rewrites what is called here.

    Why: within `tf.autograph.experimental.do_not_convert`, which has no other end, it would never be. Nor would what is
    called by a function that stands within another one, which AutoGraph has rewritten with that one and takes as it is.
    Breaks first: tests/training/step/test_autograph.py.

    Args:
        function: As given to `strategy.run`. A `tf.function` is returned as it is: it has its own answer.
    """
    if isinstance(function, tf.types.experimental.PolymorphicFunction):
        return function
    autograph = tf.__internal__.autograph
    context = autograph.control_status_ctx()
    converted = autograph.tf_convert(function, context, convert_by_default=False)
    if converted is not function:
        return converted

    def in_context(*args: Any, **kwargs: Any) -> Any:
        with context:
            return function(*args, **kwargs)

    return in_context


def left_alone(function: Function) -> Function:
    """`function`, not rewritten, with all that it calls; as a user's type checker knows it."""
    alone: Function = tf.autograph.experimental.do_not_convert(function)
    return alone


def in_place_of(own: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of what is put in the place of a function of Keras's or TensorFlow's.

    It has the name and the module of that one, by which AutoGraph takes it for theirs and leaves it alone, with all
    that it calls. In the place of a function of the user's own it is rewritten, as that one would be.

    Args:
        own: The function, or a bound method.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(own)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return replaced

    return decorate
