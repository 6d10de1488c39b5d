"""What does `map_fn` get, and is its result kept?"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfscale.errors import DataError


class ExampleMap:
    """Calls a `map_fn` on single examples.

    Args:
        map_fn: As `GlobalDataset`; None leaves examples as they are.
        keep: Whether to keep each result in memory and not to map that example again.

    Raises:
        DataError: When there is nothing to keep, or what is kept would differ from epoch to epoch.
    """

    def __init__(self, map_fn: Callable[..., Any] | None, *, keep: bool):
        self._map_fn = map_fn
        self._seed_goes = None if map_fn is None else _place_of_seed(map_fn)
        if keep and (map_fn is None or self._seed_goes):
            fault = "no map_fn" if map_fn is None else "a map_fn that takes a seed, whose draws would be frozen"
            raise DataError(
                '`cache="mapped"` keeps what `map_fn` returns, which must be the same in every epoch.\n'
                f"Received: {fault}. Use cache=True, which keeps the examples as they are read."
            )
        self._kept = _Kept() if keep else None

    @property
    def leaves_examples(self) -> bool:
        """Whether examples stay as they are."""
        return self._map_fn is None

    def __call__(self, index: tf.Tensor, epoch: tf.Tensor, seed: tf.Tensor, example: Any) -> Any:
        """What becomes of the example at `index` of the source; for use in a `tf.data` function."""
        if self._map_fn is None:
            return example
        if self._kept is not None:
            return self._kept.get(index, self._map_fn, example)
        if self._seed_goes is None:
            return self._map_fn(example)
        example_seed = fold(fold(as_seed(seed), epoch), index)
        if self._seed_goes == "by name":
            return self._map_fn(example, seed=example_seed)
        return self._map_fn(example, example_seed)


class _Kept:
    """Results by example, in memory outside of Python, so that parallel calls need not wait for each other."""

    def __init__(self) -> None:
        with tf.device("CPU:0"):
            self._table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.string, default_value="")

    def get(self, index: tf.Tensor, make: Callable[[Any], Any], example: Any) -> Any:
        found = self._table.lookup(index)
        structure: list[Any] = []

        def make_and_keep() -> list[tf.Tensor]:
            made = make(example)
            structure.append(made)
            leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(made, expand_composites=True)]
            value = tf.io.serialize_tensor(tf.stack([tf.io.serialize_tensor(leaf) for leaf in leaves]))
            with tf.control_dependencies([self._table.insert(index, value)]):
                return [tf.identity(leaf) for leaf in leaves]

        def restore() -> list[tf.Tensor]:
            # Traced after the other branch, whose result it has to look like.
            parts = tf.io.parse_tensor(found, tf.string)
            like = tf.nest.flatten(structure[0], expand_composites=True)
            like = [tf.convert_to_tensor(leaf) for leaf in like]
            return [
                tf.ensure_shape(tf.io.parse_tensor(parts[place], leaf.dtype), leaf.shape)
                for place, leaf in enumerate(like)
            ]

        leaves = tf.cond(tf.equal(found, ""), make_and_keep, restore)
        return tf.nest.pack_sequence_as(structure[0], leaves, expand_composites=True)


# For functions of ours that lead to none of the user's: converting them took a third of the time to make a pipeline.
as_written = tf.autograph.experimental.do_not_convert


def map_in_parallel(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    """Maps on as many threads as TensorFlow's autotuner finds good; the order stays."""
    return dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def batch_in_parallel(examples: tf.data.Dataset, rows: int, *, drop_remainder: bool = False) -> tf.data.Dataset:
    """Batches likewise."""
    return examples.batch(rows, drop_remainder=drop_remainder, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def as_seed(seed: tf.Tensor) -> tf.Tensor:
    """The two words of a seed, int32 `[2]`."""
    return tf.cast(tf.stack([seed % 2**31, seed // 2**31]), tf.int32)


def fold(seed: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """A stateless seed, int32 `[2]`, of a seed and a number; its second word is the number itself."""
    return tf.random.fold_in(seed, tf.cast(number, tf.int32))


def check_one_for_one(spec: Any) -> None:
    """Refuses a `map_fn` that makes several examples of one.

    Args:
        spec: Of what it returns.

    Raises:
        DataError: When it returns a dataset.
    """
    if any(isinstance(leaf, tf.data.DatasetSpec) for leaf in tf.nest.flatten(spec)):
        raise DataError(
            "`map_fn` must turn one example into one example.\n"
            "Received: a map_fn that returns a dataset. Apply it to the source with .flat_map(...) before."
        )


def _place_of_seed(map_fn: Callable[..., Any]) -> str | None:
    """How a `map_fn` wants a seed beside its example: as an argument of that name, as its second, or not at all."""
    parameters = inspect.signature(map_fn).parameters
    if "seed" in parameters:
        return "by name"
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [
        each for each in parameters.values() if each.kind in positional and each.default is inspect.Parameter.empty
    ]
    return "second" if len(required) >= 2 else None
