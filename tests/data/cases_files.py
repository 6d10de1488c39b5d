"""`sharding="files"` in one process: the rows of every worker of a job that is only imagined."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tfscale
from tfscale.data.file_pipeline import FilePipeline
from tfscale.data.files import divide_files
from tfscale.data.mapping import ExampleMap
from tfscale.data.rows import EpochRows
from tfscale.replicas.replica_batch import LocalReplicas

# 28 examples: three batches of 8 and one of 4. One file is empty.
LENGTHS, GLOBAL_BATCH = (7, 3, 0, 11, 5, 2), 8


def write(directory: Path, lengths: Sequence[int]) -> list[str]:
    """TFRecord files with the numbers from 0 on."""
    directory.mkdir(parents=True, exist_ok=True)
    names, number = [], 0
    for file, length in enumerate(lengths):
        names.append(str(directory / f"part-{file}"))
        with tf.io.TFRecordWriter(names[-1]) as writer:
            for _ in range(length):
                writer.write(str(number).encode())
                number += 1
    return names


def _number(record: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_number(record, tf.int64)


def passes(directory: str) -> dict[Any, Any]:
    """Three passes by each way to divide, the second one from its third step on too."""
    files = tfscale.RecordFiles(str(Path(write(Path(directory), LENGTHS)[0]).parent / "part-*"))
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, devices=1, seed=3)
    found: dict[Any, Any] = {"lengths": files.lengths}
    for sharding in ("exact", "files"):
        for options in ({}, {"shuffle": True}, {"shuffle": 5, "cache": True}, {"drop_remainder": True, "cache": True}):
            data = dp.dataset(files, map_fn=_number, sharding=sharding, **options)
            epochs = [_numbers(data) for _ in range(3)]
            data.start_at(1, 2)
            found[(sharding, *options)] = {"epochs": epochs, "middle": _numbers(data), "steps": len(data)}
    return found


def _numbers(data: Any) -> list[list[int]]:
    return [batch.numpy().tolist() for batch in data]


def rows(directory: str, num_workers: int, here: int, drop_remainder: bool) -> dict[str, Any]:
    """What every replica of a job takes of every step, and the same of the whole dataset."""
    files = tfscale.RecordFiles(write(Path(directory), LENGTHS))
    total = num_workers * here
    pipeline = FilePipeline(
        files,
        EpochRows(files.num_examples, GLOBAL_BATCH, (Fraction(1),) * total, drop_remainder),
        divide_files(files.lengths, [Fraction(1)] * num_workers),
        ExampleMap(_draw, keep=False),
        6,
        False,
        lambda: np.array([1, 0, 7], np.int64),
    )
    workers = [
        [
            [(part.data[0].numpy().tolist(), *(int(number) for number in part[1:4])) for part in step]
            for step in pipeline.of_replicas(LocalReplicas(worker * here, here, total))
        ]
        for worker in range(num_workers)
    ]
    whole = [tuple(leaf.numpy().tolist() for leaf in batch) for batch in pipeline.whole()]
    return {"workers": workers, "whole": whole}


def _draw(record: tf.Tensor, seed: tf.Tensor) -> Any:
    return _number(record), tf.random.stateless_uniform((), seed)


def builder(directory: str) -> dict[str, Any]:
    """A builder of TensorFlow Datasets with several files, by example and by file."""
    import tensorflow_datasets as tfds

    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    from digits_dataset import Digits

    made = Digits(data_dir=directory)
    made.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=5))
    dp = tfscale.DataParallel(global_batch=100, devices=1)
    found: dict[str, Any] = {"lengths": made.info.splits["train"].shard_lengths}
    for sharding in ("exact", "files"):
        data = dp.dataset(made, sharding=sharding, map_fn=lambda example: (example["image"], example["label"]))
        batches = list(data)
        found[sharding] = {
            "spec": [(leaf.dtype.name, leaf.shape[1:].as_list()) for leaf in data.element_spec],
            "sum": sum(int(tf.reduce_sum(tf.cast(image, tf.int64))) for image, _ in batches),
            "labels": np.bincount(np.concatenate([label for _, label in batches])).tolist(),
        }
    return found


def refused(directory: str, kind: str) -> None:
    """What has to be refused."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, devices=1)
    names = write(Path(directory), LENGTHS)
    if kind == "no files":
        tfscale.RecordFiles(str(Path(directory, "none*")))
    elif kind == "lengths":
        tfscale.RecordFiles(names, lengths=[1, 2])
    elif kind == "empty":
        dp.dataset(tfscale.RecordFiles(names[2:3]))
    elif kind == "arrays":
        dp.dataset(np.arange(9), sharding="files")
    elif kind == "sharding":
        dp.dataset(np.arange(9), sharding="file")
    elif kind == "auto":
        dp.dataset(tfscale.RecordFiles(names), sharding="files", worker_load="auto")
    elif kind == "other length":
        data = dp.dataset(tfscale.RecordFiles(names, lengths=(7, 3, 0, 11, 6, 1)), sharding="files")
        list(data)
