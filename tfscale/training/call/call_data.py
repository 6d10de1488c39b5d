"""Which data does a call of `fit`, `evaluate` or `predict` take, and in which batches?"""

from __future__ import annotations

import functools
import logging
import types
import weakref
from typing import Any

import keras
import tensorflow as tf

from tfscale.data.dataset import GlobalDataset, OwnBatches
from tfscale.data.drawing import drawing_again
from tfscale.errors import DataError
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.replica_batch import GlobalBatches
from tfscale.training.step.batch_checks import ExpectedBatch, check_first_batches, expect_global_batch
from tfscale.training.step.call_arguments import CallArguments

_log = logging.getLogger(__name__)
_BATCH_OF_KERAS = 32
_GENERATORS = Fact[weakref.WeakSet[Any]](ReplicaGroup, "generators", lambda read: f"{len(read)} read by a call")


def take_data(name: str, given: CallArguments, strategy: tf.distribute.Strategy) -> None:
    """Puts what Keras recognises as data in the place of what tfscale, or its strategy, made of them.

    Args:
        name: Of the method that is called.
        given: Its arguments.
        strategy: Of the model.
    """
    for argument in ("x", "validation_data") if name == "fit" else ("x",):
        _warn_of_generator(name, given.get(argument), strategy)
    for argument in ("x", "validation_data"):
        if isinstance(given.get(argument), GlobalBatches | OwnBatches):
            given[argument] = given[argument].undistributed
        if isinstance(given.get(argument), GlobalDataset):
            given[argument] = given[argument].as_tf_data()


def _warn_of_generator(name: str, data: Any, strategy: tf.distribute.Strategy) -> None:
    """Warns of a Python generator that a call before has read, and read ahead."""
    if not isinstance(data, types.GeneratorType):
        return
    read = _GENERATORS.ensure(strategy, weakref.WeakSet())
    if data in read:
        _log.warning(
            "%s: the generator %r was read by a call before, and read ahead; those batches are lost. They are more "
            "than Keras alone reads ahead, and how many depends on time. For runs that are to be the same, make a new "
            "one for each call, or take a tf.data.Dataset",
            name,
            data.__name__,
        )
    read.add(data)


def suit_batch(name: str, given: CallArguments, global_batch: int | None, strategy: tf.distribute.Strategy) -> None:
    """Fills in the batch size, or has it checked where the data have one of their own.

    Args:
        name: Of the method that is called.
        given: Its arguments.
        global_batch: Rows of a full training batch; None where nobody has said it, and nothing is checked.
        strategy: Of the model; checks the data that it distributes next.

    Raises:
        DataError: When `fit` was given another batch size.
    """
    x = given.get("x")
    if global_batch is None:
        return
    if (
        name == "fit"
        and isinstance(x, tf.data.Dataset | tf.distribute.DistributedDataset)
        and given.can_take("shuffle")
    ):
        # Keras warns of its own default where a dataset has an order already.
        given.setdefault("shuffle", False)
    if "x" in given and are_arrays(x) and given.can_take("batch_size"):
        # `evaluate` and `predict` divide batches of any size, also those of 32 that Keras makes where none is said.
        if name == "fit" and given.get("batch_size") is None:
            given["batch_size"] = global_batch
            _tell_batch_size(global_batch)
        elif name == "fit":
            _check_batch_size(given["batch_size"], global_batch)
    elif name == "fit" and not isinstance(x, tf.distribute.DistributedDataset):
        # Also where a class gives `fit` other arguments, and makes its data only then.
        expected = ExpectedBatch(global_batch, given.get("steps_per_epoch"))
        if isinstance(x, keras.utils.PyDataset):
            with drawing_again(x):
                check_first_batches(x, global_batch)
            expected = ExpectedBatch(global_batch, expected.num_batches or x.num_batches, in_any_order=True)
        expect_global_batch(strategy, expected)


@functools.cache
def _tell_batch_size(global_batch: int) -> None:
    """Once for each size, and so that it is seen where nothing is set up for the log."""
    if global_batch != _BATCH_OF_KERAS:
        _log.warning("fit without batch_size: the global batch, %d, in the place of Keras's 32", global_batch)


def are_arrays(x: Any) -> bool:
    """Whether Keras will batch `x` itself, by `batch_size`."""
    if isinstance(x, tf.data.Dataset | tf.distribute.DistributedDataset):
        return False
    leaves = keras.tree.flatten(x)
    return bool(leaves) and all(leaf is None or hasattr(leaf, "shape") for leaf in leaves)


def _check_batch_size(batch_size: int, global_batch: int) -> None:
    if batch_size != global_batch:
        raise DataError(
            f"`batch_size` must be the global batch ({global_batch}); it is filled in when left out.\n"
            f"Received: batch_size={batch_size}. Leave it out, or make DataParallel with global_batch={batch_size}."
        )
