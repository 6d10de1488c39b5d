"""What if a step cannot be compared, since it does not even run on one replica?"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from tfscale.errors import TfscaleError
from tfscale.exact.divided_calls import DrawsBesideError
from tfscale.replicas.agreement import first_of_workers
from tfscale.training.step.scope_errors import misplaced_error

# Characters of somebody else's error.
_SHOWN = 500
_TOO_MUCH = "!"
# How libraries of a GPU end that find no room for themselves there.
_NO_ROOM = re.compile(r"out.of.memory|no blas support|library initialization failed|alloc_failed", re.IGNORECASE)


class NoReferenceError(Exception):
    """That a step does not run on one replica: with other rows than it expects, or with too many.

    Args:
        message: Why.
        takes_too_much: Whether the device has no room for so many rows.
    """

    def __init__(self, message: object, *, takes_too_much: bool = False):
        super().__init__(message)
        self.takes_too_much = takes_too_much


@contextlib.contextmanager
def agreeing_on_reference(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Tells a step that does not even run on one replica from whatever else fails; on all workers, or on none.

    Args:
        strategy: Of the job. Every worker enters it.

    Raises:
        NoReferenceError: For any error but the end of the data, and what tells that a way of dividing is none: this
            worker's own, or that of the first that has one.
    """
    why: Exception | None = None
    try:
        yield
    except (tf.errors.OutOfRangeError, DrawsBesideError):
        raise
    except Exception as error:
        why = error
    found = first_of_workers(strategy, "" if why is None else _told(why))
    if found:
        raise NoReferenceError(found[1:], takes_too_much=found[0] == _TOO_MUCH) from why


def _told(error: Exception) -> str:
    """An error as it goes to the other workers: whether it takes too much, then its kind and text."""
    is_of_library = isinstance(error, tf.errors.InternalError) and _NO_ROOM.search(str(error)) is not None
    too_much = is_of_library or isinstance(error, tf.errors.ResourceExhaustedError | MemoryError)
    return f"{_TOO_MUCH if too_much else ' '}{type(error).__name__}: {error}"[:_SHOWN]


def describe_no_reference(why: NoReferenceError, what: str) -> str:
    """The text of the error where a step could not be compared.

    Args:
        why: In what it ended on one replica.
        what: The step, such as "first step of model 'a'".

    Raises:
        TfscaleError: That of tfscale in which the step itself ended: it has a cause and a way out of its own.
    """
    cause = why.__cause__
    if isinstance(cause, TfscaleError):
        raise cause
    misplaced = misplaced_error(cause, f"the {what}") if isinstance(cause, Exception) else None
    if misplaced is not None:
        raise misplaced from cause
    return (
        f"The {what} could not be checked: it does not run on one replica with the rows of all. "
        "Whether several replicas train as one does is not known. Nothing was updated by it.\n"
        f"Received: {why}\n"
        "Let the step run on any number of rows (`tf.shape(x)[0]` for a number that is written out), for plain Keras "
        'gets all of these on one device. `prepare(model, check="warn")` trains with this as a warning, and '
        '`check="off"` without the check.'
    )
