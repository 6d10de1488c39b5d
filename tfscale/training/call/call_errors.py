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

from tfscale.errors import ModelError
from tfscale.replicas.out_of_memory import out_of_memory_error
from tfscale.training.step.distribution import uneven_examples_error, wrong_batch_error

_log = logging.getLogger(__name__)

# What TensorFlow says of an optimizer that was made outside of the scope, and that no attribute leads to.
_TWO_STRATEGIES = ("Mixing different tf.distribute.Strategy objects", "Must not nest tf.distribute.Strategy scopes")

# What Keras says of a variable that an optimizer was not built with.
_UNKNOWN = "This optimizer can only be called for the variables it was originally built with"


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
        ModelError: Something belongs to another strategy, or was made after the optimizer.
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
    except ValueError as error:
        if _UNKNOWN not in str(error) or isinstance(error, ModelError):
            raise
        raise ModelError(
            "A step met a layer, or made one, that was not there when its optimizer was built.\n"
            f"Received: {str(error)[:200]!r} from Keras, in `{name}` of a {type(model).__name__}. A branch of Python "
            "leads to it, by what a batch holds or by its number of rows, of which each replica has a part. Build all "
            "layers before: call the model on a few rows inside `with dp.scope():`, with each branch taken once."
        ) from error
    except RuntimeError as error:
        if not any(said in str(error) for said in _TWO_STRATEGIES):
            raise
        raise ModelError(
            "What a step updates must be created under the strategy's scope.\n"
            f"Received: {str(error)[:200]!r} from TensorFlow, in `{name}` of a {type(model).__name__}. "
            "Create every optimizer and metric, also in lists and inner models, inside `with dp.scope():`."
        ) from error
