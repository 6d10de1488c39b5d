"""What does an error of TensorFlow's mean, that ended `fit`, `evaluate` or `predict` on this worker?"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import sys
from collections.abc import Iterator

import keras
import tensorflow as tf

from tfscale.replicas.out_of_memory import out_of_memory_error
from tfscale.training.step.batch_checks import uneven_examples_error, wrong_batch_error
from tfscale.training.step.scope_errors import misplaced_error

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def freeing_when_python_ends() -> Iterator[None]:
    """Has what a call held that failed freed before Python ends, whatever holds its error till then.

    Why: TensorFlow may wait for ever where an iterator of data from Python is freed after Python's end.
    Breaks first: tests/training/call/test_call_errors.py.
    """
    try:
        yield
    except BaseException:
        atexit.unregister(_free)
        atexit.register(_free)
        raise


def _free() -> None:
    # An error that nobody caught holds its frames.
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        if hasattr(sys, name):
            setattr(sys, name, None)
    gc.collect()


@contextlib.contextmanager
def naming_errors(
    model: keras.Model, strategy: tf.distribute.Strategy, name: str, global_batch: int | None
) -> Iterator[None]:
    """Raises an error of ours for those of TensorFlow's that the user can do something about.

    Args:
        model: Whose call it is.
        strategy: Of the model.
        name: Of the call.
        global_batch: Rows of a full training batch, if there is a number of them.

    Raises:
        DataError: A batch has the wrong rows.
        DeviceError: There is not enough memory.
        ModelError: Something belongs to another strategy, or was made after the optimizer, or too late.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        ours = wrong_batch_error(error, global_batch) or uneven_examples_error(error)
        if ours is None:
            raise
        raise ours from error
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        short = out_of_memory_error(error, strategy, name)
        if short is None:
            raise
        _log.debug("What TensorFlow said of it:", exc_info=error)
        # The pages about the graph of the step would stand between the user and the cause.
        raise short from None
    except Exception as error:
        misplaced = misplaced_error(error, f"`{name}` of a {type(model).__name__}")
        if misplaced is None:
            raise
        raise misplaced from error
