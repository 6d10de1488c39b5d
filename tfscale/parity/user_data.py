"""How does every run see the same examples in the same order?

Arrays are not shuffled by `fit`. A `tf.data.Dataset` is read once and kept in memory, so that its
shuffles and random maps, seeded, come out the same in every epoch and however often Keras begins to
read it. Anything else, such as a `PyDataset` or a generator, is made anew for each pass.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.errors import ParityError
from tfscale.parity.outcome import DataFacts

# The batch of `fit` when nothing says otherwise.
_KERAS_BATCH = 32
# Of data that must be made anew for each pass, so many batches are looked at.
_MAX_BATCHES = 1000


@dataclass(frozen=True)
class UserData:
    """The training data in the form that `fit`, `evaluate` and `predict` take.

    Args:
        make_arguments: Returns the arguments of `fit` that hold data.
        facts: What is known of the data.
        first_batch: `x`, `(x, y)` or `(x, y, sample_weight)` of the first step.
    """

    make_arguments: Callable[[], Mapping[str, Any]]
    facts: DataFacts
    first_batch: Any

    def for_fit(self) -> dict[str, Any]:
        """Arguments for `fit`, in the order of the data."""
        return {**self.make_arguments(), "shuffle": False, "verbose": 0}

    def for_evaluate(self) -> dict[str, Any]:
        """Arguments for `evaluate` on the training data."""
        return self._select("x", "y", "sample_weight", "batch_size")

    def for_predict(self) -> dict[str, Any]:
        """Arguments for `predict` on the training data."""
        return self._select("x", "batch_size")

    def _select(self, *names: str) -> dict[str, Any]:
        arguments = self.make_arguments()
        selected = {name: arguments[name] for name in names if name in arguments}
        steps = arguments.get("steps_per_epoch")
        return {**selected, "verbose": 0} | ({} if steps is None else {"steps": steps})


def read_user_data(function: Callable[[], Any], *, seed: int, epochs: int, global_batch: int | None) -> UserData:
    """Calls the user's `data` and makes what it returns comparable between runs.

    Args:
        function: The user's function.
        seed: Seeds Python, NumPy and Keras before each call.
        epochs: Epochs that `fit` will train.
        global_batch: Examples per step; None takes the data's own, 32 for arrays.

    Raises:
        ParityError: When the data have a form that `fit` does not take, are empty, never end, or
            have another batch than `global_batch`.
    """

    def make() -> dict[str, Any]:
        keras.utils.set_random_seed(seed)
        return _as_arguments(function())

    arguments = make()
    x = arguments.get("x")
    if isinstance(x, tf.data.Dataset):
        return _from_dataset(arguments, epochs, global_batch)
    if _are_arrays(x):
        return _from_arrays(arguments, global_batch)
    steps = arguments.get("steps_per_epoch") or _MAX_BATCHES
    facts, first = _look_through(_batches(make()["x"], steps), steps, global_batch)
    return UserData(make, facts, first)


def _as_arguments(data: Any) -> dict[str, Any]:
    """Names what `data` returned as `fit` does."""
    if isinstance(data, Mapping) and "x" in data:
        _check_argument_names(data)
        return {key: value for key, value in data.items() if value is not None}
    if isinstance(data, tuple):
        if not 1 <= len(data) <= 3:
            raise ParityError(
                "A tuple from `data` must be (x, y) or (x, y, sample_weight).\n"
                f"Received: {len(data)} entries. Return a list for several inputs, or a dict of "
                "the arguments of `fit`."
            )
        return dict(zip(("x", "y", "sample_weight"), data, strict=False))
    if data is None:
        raise ParityError(
            "`data` must return the training data.\n"
            "Received: None. Return (x, y), a dict of the arguments of `fit`, or a batched "
            "tf.data.Dataset."
        )
    return {"x": data}


def _check_argument_names(data: Mapping[str, Any]) -> None:
    refused = {
        "epochs": "give `epochs` to verify",
        "initial_epoch": "every run starts at the first epoch",
        "verbose": "runs are silent",
        "shuffle": "runs must see the same order",
    }
    for name, reason in refused.items():
        if name in data:
            raise ParityError(
                f"A dict from `data` must not hold {name!r}.\nReceived: {name}={data[name]!r}. Leave it out: {reason}."
            )


def _from_dataset(arguments: dict[str, Any], epochs: int, global_batch: int | None) -> UserData:
    dataset, steps = arguments["x"], arguments.get("steps_per_epoch")
    if steps is None and dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ParityError(
            "A dataset from `data` must end.\n"
            "Received: an infinite tf.data.Dataset. Leave out `repeat()`, or return "
            "{'x': dataset, 'steps_per_epoch': ...}."
        )
    kept = {name: value.cache() if isinstance(value, tf.data.Dataset) else value for name, value in arguments.items()}
    if steps is not None:
        # With a number of steps Keras reads on where the last epoch stopped.
        kept["x"] = dataset.take(steps * epochs).cache()
    for name, value in kept.items():
        if name != "x" and isinstance(value, tf.data.Dataset):
            value.reduce(0, lambda count, *_: count)  # fills the memory
    facts, first = _look_through(kept["x"], steps, global_batch)
    return UserData(lambda: kept, facts, first)


def _from_arrays(arguments: dict[str, Any], global_batch: int | None) -> UserData:
    parts = [arguments.get(name) for name in ("x", "y", "sample_weight")]
    leaves = [leaf for leaf in keras.tree.flatten(parts) if leaf is not None]
    given = arguments.get("batch_size")
    batch = global_batch or given or _KERAS_BATCH
    if given not in (None, batch):
        raise _other_batch(batch, given)
    rows = len(leaves[0])
    split = arguments.get("validation_split")
    if split and arguments.get("validation_data") is None:
        rows = int(np.floor(rows * (1 - split)))
    if rows == 0:
        raise _no_examples()
    sizes = {min(batch, rows), rows % batch or min(batch, rows)}
    digest = hashlib.sha256()
    for leaf in leaves:
        _digest(digest, leaf)
    first = [keras.tree.map_structure(lambda leaf: leaf[:batch], part) for part in _filled(parts)]
    steps = -(-rows // batch)
    facts = DataFacts(batch, steps, tuple(sorted(sizes)), digest.hexdigest())
    arguments["batch_size"] = batch
    return UserData(lambda: arguments, facts, keras.utils.pack_x_y_sample_weight(*first))


def _filled(parts: list[Any]) -> list[Any]:
    """`x`, `y` and `sample_weight` up to the last that is given."""
    while len(parts) > 1 and parts[-1] is None:
        parts = parts[:-1]
    return parts


def _look_through(batches: Iterable[Any], steps: int | None, global_batch: int | None) -> tuple[DataFacts, Any]:
    """Reads all batches once; the facts tell two data sets apart."""
    digest, sizes, first = hashlib.sha256(), [], None
    for batch in batches:
        leaves = tf.nest.flatten(batch, expand_composites=True)
        if first is None:
            first = batch
        sizes.append(int(leaves[0].shape[0]) if leaves[0].shape else 0)
        for leaf in leaves:
            _digest(digest, leaf)
    if not sizes or not max(sizes):
        raise _no_examples()
    # The first batch is full unless it is the only one.
    batch_size = global_batch if global_batch and len(sizes) == 1 else sizes[0]
    if global_batch not in (None, batch_size) or sizes[0] > batch_size:
        raise _other_batch(global_batch, sizes[0])
    num_steps = min(steps or len(sizes), len(sizes))
    return DataFacts(batch_size, num_steps, tuple(sorted(set(sizes))), digest.hexdigest()), first


def _batches(source: Any, steps: int) -> Iterator[Any]:
    """The batches of a `PyDataset` or of any iterable, up to `steps`."""
    if isinstance(source, keras.utils.PyDataset):
        known = source.num_batches
        yield from (source[index] for index in range(min(steps, known if known else steps)))
        return
    if not isinstance(source, Iterable):
        raise ParityError(
            "`data` must return what `fit` takes.\n"
            f"Received: an object of type {type(source).__name__}. Return (x, y), a dict of the "
            "arguments of `fit`, or a batched tf.data.Dataset."
        )
    for _, batch in zip(range(steps), source, strict=False):
        yield keras.tree.map_structure(np.asarray, batch)


def _are_arrays(x: Any) -> bool:
    leaves = keras.tree.flatten(x)
    return bool(leaves) and all(hasattr(leaf, "shape") for leaf in leaves)


def _digest(digest: Any, leaf: Any) -> None:
    array = np.asarray(leaf)
    digest.update(f"{array.dtype}{array.shape}".encode())
    # Strings are objects to numpy.
    digest.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())


def _no_examples() -> ParityError:
    return ParityError(
        "`data` must return at least one example.\n"
        "Received: no example. Check the path, the split and the filters of the data."
    )


def _other_batch(global_batch: int | None, received: int) -> ParityError:
    return ParityError(
        f"The data must come in batches of the global batch ({global_batch}).\n"
        f"Received: a batch of {received}. Leave `global_batch` out to take the data's own."
    )
