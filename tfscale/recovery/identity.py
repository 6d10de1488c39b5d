"""Is this the run whose state was saved?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.data.dataset import GlobalDataset, find_global_dataset
from tfscale.gradients.updaters import held_optimizers, innermost

# By so many rows data are known again.
_NUM_COMPARED = 16
# The rate, which callbacks change in the course of a run, and what is a name only.
_NOT_COMPARED = {"name", "learning_rate"}
# What may be another number where the batch is another one.
_BY_BATCH = ("batches", "steps of an epoch", "optimizer ")


def identify_data(x: Any) -> dict[str, Any]:
    """Returns what is the same of the data for as long as a run is the same one, by names that a person understands.

    Args:
        x: As given to `fit`.
    """
    dataset = find_global_dataset(x)
    if dataset is not None:
        return _identify_dataset(dataset)
    if isinstance(x, tf.data.Dataset):
        length = int(x.cardinality())
        return {"data": "a tf.data.Dataset", **({"batches": length} if length >= 0 else {})}
    if isinstance(x, keras.utils.PyDataset):
        return {"data": "a PyDataset"}
    leaves = [leaf for leaf in keras.tree.flatten(x) if leaf is not None]
    if not leaves or not all(hasattr(leaf, "shape") for leaf in leaves):
        return {"data": f"a {type(x).__name__}"}
    known = {"data": "arrays", "examples": int(leaves[0].shape[0])}
    if all(isinstance(leaf, np.ndarray) for leaf in leaves):
        known["fingerprint of some examples"] = _fingerprint(leaves)
    return known


def identify_optimizers(model: keras.Model) -> dict[str, Any]:
    """As `identify_data`, of the optimizers of a compiled model."""
    identity: dict[str, Any] = {}
    for place, optimizer in enumerate(map(innermost, held_optimizers(model))):
        identity |= {f"optimizer {place}'s {name}": value for name, value in _settings(optimizer)}
    return identity


def find_differences(saved: Mapping[str, Any], own: Mapping[str, Any], *, same_batch: bool) -> list[str]:
    """Returns what is not the same, in words.

    Args:
        saved: What was returned when the state was saved.
        own: What it returns now.
        same_batch: Whether the global batch is the same; numbers that go with it are not compared otherwise.
    """
    return [
        f"{name}: {saved[name]!r} when it was saved, {value!r} now"
        for name, value in own.items()
        if name in saved and saved[name] != value and (same_batch or not name.startswith(_BY_BATCH))
    ]


def _identify_dataset(dataset: GlobalDataset) -> dict[str, Any]:
    if not dataset.reads_by_index:
        # Who knows whether the first ones of a stream are the same each time.
        return {"data": "a dp.dataset of a stream", "examples": dataset.num_examples}
    number = dataset.fingerprint()[1]
    known = {"examples": dataset.num_examples, "fingerprint of some examples": f"{number:016x}"}
    return {"data": "a dp.dataset of arrays", **known}


def _fingerprint(leaves: Iterable[np.ndarray]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for leaf in leaves:
        some = leaf[np.linspace(0, len(leaf) - 1, min(_NUM_COMPARED, len(leaf))).astype(np.int64)]
        digest.update(repr((str(leaf.dtype), leaf.shape[1:], some.tolist() if leaf.dtype.hasobject else "")).encode())
        digest.update(b"" if leaf.dtype.hasobject else some.tobytes())
    return digest.hexdigest()


def _settings(optimizer: keras.optimizers.Optimizer) -> Iterator[tuple[str, Any]]:
    yield "kind", type(optimizer).__name__
    try:
        config = optimizer.get_config()
    except NotImplementedError:  # Of a schedule of one's own.
        return
    for name, value in config.items():
        if name not in _NOT_COMPARED and (value is None or isinstance(value, bool | int | float | str)):
            yield name, value
