"""Would several workers write one file of `tf.data`'s `cache(filename)`?

Each writes what it has read, and the second one finds the first one's lock in its way: TensorFlow says so in the midst
of the first epoch, on one worker, and the others hear that one has failed.
"""

from __future__ import annotations

import os
import socket
import zlib

import tensorflow as tf

from tfscale.errors import DataError
from tfscale.framework.datasets import cache_files
from tfscale.replicas.agreement import gather_number
from tfscale.replicas.replica_batch import local_replicas
from tfscale.training.step.call_arguments import CallArguments


def refuse_shared_cache(given: CallArguments, strategy: tf.distribute.Strategy) -> None:
    """Refuses data that workers of one host would keep in the same file; to be called by every worker before `fit`.

    A file that is whole already is only read. On hosts of their own the same path may be of other disks.

    Args:
        given: Arguments of `fit`.
        strategy: Of the model.

    Raises:
        DataError: On every worker.
    """
    replicas = local_replicas(strategy)
    if not replicas.on_several_workers:
        return
    data = [given.get(name) for name in ("x", "validation_data")]
    files = {os.path.abspath(file) for each in data if isinstance(each, tf.data.Dataset) for file in cache_files(each)}
    begun = sorted(file for file in files if not tf.io.gfile.exists(f"{file}.index"))
    # A worker without such a file is like none.
    own = zlib.crc32(f"{socket.gethostname()}:{begun}".encode()) if begun else -1 - replicas.first
    everyone = gather_number(strategy, own)
    if len(set(everyone)) < len(everyone):
        raise DataError(
            "Each worker must have a file of its own for `cache(filename)`.\n"
            f"Received: {', '.join(begun) or 'one file on several other workers'}, which several workers of one host "
            "would write at once. Put the rank into its name (`dp.rank`), leave the name out to keep the examples in "
            "memory, or give the source to `dp.dataset(..., cache=True)`."
        )
