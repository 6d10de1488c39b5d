"""In which order do several workers read what Keras shuffles in `fit`?

Each reads all of it, and takes its rows of every batch: where each has its own order, examples come twice or never. So
arrays that Keras would shuffle are handed to it as a data set in an order that all workers have, and that it leaves
alone.
"""

from __future__ import annotations

import itertools
import math
import random
import secrets
import warnings
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.data.dataset import find_global_dataset
from tfscale.errors import DataError
from tfscale.framework.datasets import has_unseeded_shuffle, shares_order_per_pass, shuffle_seeds
from tfscale.replicas.agreement import gather_from_workers, worker_unlike_chief
from tfscale.replicas.replica_batch import local_replicas
from tfscale.training.call.call_data import are_arrays
from tfscale.training.step.call_arguments import CallArguments

# What TensorFlow answers for the global seed where there is none, and an operation has one.
_UNSET = 87654321


def order_alike(name: str, given: CallArguments, strategy: tf.distribute.Strategy, model: keras.Model) -> None:
    """Has all workers read what `fit` shuffles in one order; to be called by every worker.

    Without a global seed of TensorFlow's, or with another one on each worker, arrays come in the order of a seed of the
    chief's, another one in every epoch. A global seed that all have decides as Keras has it: every epoch has the same
    order. To set one here would have all else repeat itself too, such as what a `map` draws. A `PyDataset` is shuffled
    as the chief's Python would. Arrays of which no data set is made are refused where they are distributed.

    Args:
        name: Of the call.
        given: Its arguments, with a batch size if they need one; changed.
        strategy: Of the model.
        model: Whose call it is.

    Raises:
        DataError: On every worker, when data are shuffled by other seeds on one.
    """
    replicas, x = local_replicas(strategy), given.get("x")
    if name == "fit":
        _warn_of_one_order_for_two(given)
    if replicas.on_several_workers:
        _refuse_other_seeds([x, given.get("validation_data")], strategy)
    if name != "fit" or not replicas.on_several_workers or not given.get("shuffle", True):
        return
    if isinstance(x, keras.utils.PyDataset):
        _draw_as_chief(strategy)
    elif are_arrays(x):
        seed = _agree_on_seed(strategy)
        # A `fit` of a class may work on arrays before it hands them on.
        is_of_keras = type(model).fit is keras.Model.fit
        if seed is not None and is_of_keras and given.get("batch_size") and _can_be_gathered(given):
            _hand_over_in_order(given, seed)


def _warn_of_one_order_for_two(given: CallArguments) -> None:
    """Warns where the passes of training go on during those of validation, and both draw from one `shuffle`."""
    x, validation = given.get("x"), given.get("validation_data")
    if not isinstance(x, tf.data.Dataset) or not isinstance(validation, tf.data.Dataset):
        return
    goes_on = given.get("steps_per_epoch") is not None or x.cardinality() == tf.data.INFINITE_CARDINALITY
    if goes_on and shares_order_per_pass(x, validation):
        warnings.warn(
            "Training and validation draw the orders of their passes from one `shuffle`. Which of them draws next "
            "depends on how far each has read ahead, on one device as well: two runs, and runs on other replicas, may "
            "see other batches. Make the data of the validation by another `shuffle`, or by none.",
            stacklevel=2,
        )


def _refuse_other_seeds(data: Iterable[Any], strategy: tf.distribute.Strategy) -> None:
    """A `shuffle(seed=rank)`, say, or one by a global seed that differs."""
    seeds = [
        shuffle_seeds(each)
        for each in data
        if isinstance(each, tf.data.Dataset)
        and find_global_dataset(each) is None
        # In words of its own, where it is distributed.
        and not has_unseeded_shuffle(each)
    ]
    other = worker_unlike_chief(strategy, zlib.crc32(repr(seeds).encode()))
    if other is not None:
        raise DataError(
            "All workers must read the data in one order: each takes its own rows of every batch.\n"
            f"Received: other seeds of `shuffle` on worker {other} than on worker 0; here {seeds}. Give all the same "
            "one, and no global seed that depends on the rank; or the source to `dp.dataset(..., shuffle=True)`."
        )


def _agree_on_seed(strategy: tf.distribute.Strategy) -> int | None:
    """The seed that all workers shuffle by; None where they have a global one, the same on all."""
    own, _ = tf.compat.v1.random.get_seed(1)
    everyone = gather_from_workers(strategy, tf.constant([int(own), secrets.randbits(62)], tf.int64))
    seeds = {each[0] for each in everyone}
    chief_seed, drawn = everyone[0]
    if seeds == {chief_seed} and chief_seed != _UNSET:
        return None
    return int(drawn if chief_seed == _UNSET else chief_seed)


def _can_be_gathered(given: CallArguments) -> bool:
    """Whether all that has rows is a NumPy array or a tensor, of as many rows; what Keras refuses is left to it."""
    parts = [given.get(name) for name in ("x", "y", "sample_weight")]
    leaves = [leaf for part in parts if part is not None for leaf in keras.tree.flatten(part)]
    if not all(map(_is_dense, leaves)) or (given.get("class_weight") is not None and parts[2] is not None):
        return False
    return len({leaf.shape[0] for leaf in leaves}) == 1 and leaves[0].shape[0] > 0


def _is_dense(leaf: Any) -> bool:
    is_array = isinstance(leaf, np.ndarray) and leaf.dtype != object
    return (is_array or isinstance(leaf, tf.Tensor)) and len(leaf.shape) > 0


def _hand_over_in_order(given: CallArguments, seed: int) -> None:
    x, y, sample_weight = given.get("x"), given.get("y"), given.get("sample_weight")
    if sample_weight is not None and keras.tree.is_nested(y) and not keras.tree.is_nested(sample_weight):
        # One weight for each example, for all outputs, as Keras has it.
        sample_weight = keras.tree.map_structure(lambda _: sample_weight, y)
    data = keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
    num_rows = keras.tree.flatten(x)[0].shape[0]
    split = given.get("validation_split") or 0.0
    if split and given.get("validation_data") is None:
        num_training = math.floor(num_rows * (1.0 - split))
        if not 0 < num_training < num_rows:
            return  # Keras says what is wrong.
        given["validation_data"] = keras.tree.map_structure(lambda leaf: leaf[num_training:], data)
        data = keras.tree.map_structure(lambda leaf: leaf[:num_training], data)
        given["validation_split"], num_rows = 0.0, num_training
    batch_size = given["batch_size"]
    if given.get("validation_batch_size") is None:
        given["validation_batch_size"] = batch_size
    given["x"] = _in_order(data, num_rows, batch_size, seed, is_within_batches=given.get("shuffle", True) == "batch")
    given["shuffle"] = False
    for name in ("y", "sample_weight", "batch_size"):
        if given.get(name) is not None:
            given[name] = None


def _in_order(data: Any, num_rows: int, batch_size: int, seed: int, *, is_within_batches: bool) -> tf.data.Dataset:
    """Batches of the rows of arrays in an order that the seed and the number of the pass decide, and no global seed."""
    passes = itertools.count()
    starts = range(batch_size, num_rows, batch_size) if is_within_batches else []

    def orders() -> Iterator[np.ndarray]:
        generator = np.random.default_rng((seed, next(passes)))
        yield np.concatenate([generator.permutation(each) for each in np.split(np.arange(num_rows), starts)])

    with tf.device("CPU:0"):
        tensors = _with_tuples(keras.tree.map_structure(_as_tensor, data))

    @tf.autograph.experimental.do_not_convert
    def take(rows: tf.Tensor) -> Any:
        return keras.tree.map_structure(lambda leaf: tf.gather(leaf, rows), tensors)

    order = tf.data.Dataset.from_generator(orders, output_signature=tf.TensorSpec([num_rows], tf.int64))
    batches = order.flat_map(lambda rows: tf.data.Dataset.from_tensor_slices(rows).batch(batch_size))
    counted = batches.apply(tf.data.experimental.assert_cardinality(math.ceil(num_rows / batch_size)))
    return counted.map(take, num_parallel_calls=tf.data.AUTOTUNE)


def _as_tensor(leaf: Any) -> tf.Tensor:
    """Fractions as Keras takes them from arrays."""
    tensor = tf.convert_to_tensor(leaf)
    return tf.cast(tensor, keras.config.floatx()) if tensor.dtype.is_floating else tensor


def _with_tuples(data: Any) -> Any:
    """A list in a data set would be one tensor."""
    if isinstance(data, dict):
        return {key: _with_tuples(value) for key, value in data.items()}
    return tuple(map(_with_tuples, data)) if isinstance(data, list | tuple) else data


def _draw_as_chief(strategy: tf.distribute.Strategy) -> None:
    """Has Python's generator, by which Keras mixes the batches of a `PyDataset`, go on as the chief's."""
    version, state, _ = random.getstate()
    chief, *_ = gather_from_workers(strategy, tf.constant(state, tf.int64))
    if (chief := tuple(map(int, chief))) != state:
        random.setstate((version, chief, None))
