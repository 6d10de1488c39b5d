"""What if a step cannot be compared, since it does not even run on one replica?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf


class NoReferenceError(Exception):
    """What a program of the user does on one replica with other rows than it expects, or with too many.

    Args:
        message: Why.
        takes_too_much: Whether the device has no room for so many rows.
    """

    def __init__(self, message: object, *, takes_too_much: bool = False):
        super().__init__(message)
        self.takes_too_much = takes_too_much


@contextlib.contextmanager
def as_reference() -> Iterator[None]:
    """Tells a step that does not even run on one replica from whatever else fails.

    Raises:
        NoReferenceError: For any error but the end of the data.
    """
    try:
        yield
    except tf.errors.OutOfRangeError:
        raise
    except Exception as error:
        too_much = isinstance(error, tf.errors.ResourceExhaustedError)
        raise NoReferenceError(error, takes_too_much=too_much) from error
