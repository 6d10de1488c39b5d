"""Is this the batch that it was when the state was saved?

The digest of a batch is made of those of its rows, in their order, so that another number of workers, each of which
sees rows of its own, and another size of the batch can be told from other data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.replicas.replica_batch import ReplicaBatch, count_rows, has_rows

# As many rows are noted one by one: enough to tell, and little to write.
_NOTED = 32


def digest_batch(batch: Any) -> dict[str, Any]:
    """Returns what is noted of a batch: how many rows, a digest of all, and one of each of the first.

    Args:
        batch: A global batch, or the `ReplicaBatch` of each replica of this process in their order. Shapes, types and
            bytes count, those of side inputs too.
    """
    rows = _digest_rows(batch)
    return {"rows": len(rows), "all": _digest(rows), "first": rows[:_NOTED]}


def is_same_batch(noted: Mapping[str, Any], batch: Any, shift: int = 0) -> bool:
    """Whether `batch` is the one of which `noted` was made, as far as both go.

    Args:
        noted: What `digest_batch` returned.
        batch: As for `digest_batch`.
        shift: The row of `batch` at which the other one began.
    """
    rows = _digest_rows(batch)
    if shift == 0 and len(rows) == noted["rows"]:
        return bool(_digest(rows) == noted["all"])
    if shift == 0 and not (rows and noted["rows"]):
        return False
    seen = rows[shift : shift + len(noted["first"])]
    return bool(seen) and seen == noted["first"][: len(seen)]


def _digest_rows(batch: Any) -> list[str]:
    return [row for part in _parts(batch) for row in _digest_part(*part)]


def _parts(batch: Any) -> Iterator[tuple[Any, int, Any]]:
    """Data, rows that count, and side inputs of each part of a batch; none of None, which comes behind the last one."""
    if batch is None:
        return
    if isinstance(batch, ReplicaBatch):
        yield batch.data, int(batch.num_examples), batch.whole
    elif isinstance(batch, tuple) and batch and all(isinstance(each, ReplicaBatch) for each in batch):
        for each in batch:
            yield from _parts(each)
    else:
        rows, whole = count_rows(batch)
        yield batch, int(rows), whole


def _digest_part(data: Any, num_rows: int, whole: Any) -> list[str]:
    """A digest of each row that counts; what has no bytes by row, such as a sparse tensor, is whole in all of them."""
    common, words = hashlib.blake2b(digest_size=8), []
    for place, leaf in enumerate(tf.nest.flatten(data)):
        common.update(f"{place} {getattr(leaf, 'dtype', None)} {getattr(leaf, 'shape', [None])[1:]}".encode())
        is_whole = str(place) in whole and (whole[str(place)] == () or bool(whole[str(place)]))
        if isinstance(leaf, tf.Tensor) and has_rows(leaf) and not is_whole:
            words.append(_fingerprints(leaf)[:num_rows])
            continue
        for tensor in tf.nest.flatten(leaf, expand_composites=True):
            if isinstance(tensor, tf.Tensor) and tensor.dtype not in (tf.variant, tf.resource):
                common.update(_fingerprints(tensor[None]).tobytes())
    by_row = np.concatenate(words, axis=1) if words else np.zeros((num_rows, 0), np.uint8)
    start = common.digest()
    return [_digest(start + row.tobytes()) for row in by_row]


def _fingerprints(tensor: tf.Tensor) -> np.ndarray:
    """8 bytes of each row; Farmhash, which reads several GB in a second."""
    with tf.device("CPU:0"):
        return tf.fingerprint(tensor).numpy()


def _digest(content: bytes | list[str]) -> str:
    if isinstance(content, list):
        content = "".join(content).encode()
    return hashlib.blake2b(content, digest_size=8).hexdigest()
