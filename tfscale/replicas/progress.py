"""How many reductions has this worker begun and ended? Another thread may ask while a step runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.replicas.own_copies import one_for_each, own_of
from tfscale.replicas.owners import Fact, PreparedModel
from tfscale.replicas.replica_batch import LocalReplicas
from tfscale.step_context import Flag, Slot

_PAUSED = Flag("counts_nothing")


class Progress:
    """Counts of one model's reductions on this worker, kept by its steps themselves.

    Args:
        replicas: Those of this worker, each of which counts for itself.
    """

    def __init__(self, replicas: LocalReplicas):
        self._first_replica = replicas.first

        def count(name: str) -> list[tf.Variable]:
            return one_for_each(replicas.here, lambda: tf.Variable(0, dtype=tf.int64, trainable=False, name=name))

        self._arrived, self._left = count("reductions_begun"), count("reductions_ended")

    def read(self) -> tuple[int, int]:
        """Returns how many reductions the worker's first replica has begun and ended; from any thread."""
        return int(self._arrived[0].numpy()), int(self._left[0].numpy())

    def arrive(self, tensors: Sequence[Any]) -> None:
        """Counts a reduction as begun when its input is there."""
        self._count(self._arrived, tensors)

    def leave(self, tensors: Sequence[Any]) -> None:
        """Counts a reduction as ended when its output is there."""
        self._count(self._left, tensors)

    def _count(self, counters: Sequence[tf.Variable], tensors: Sequence[Any]) -> None:
        ready = [leaf for leaf in tf.nest.flatten(list(tensors), expand_composites=True) if tf.is_tensor(leaf)]
        with tf.control_dependencies([] if tf.executing_eagerly() else ready):
            own_of(counters, self._first_replica).assign_add(1)


PROGRESS = Fact[Progress](PreparedModel, "progress")
_COUNTING = Slot[Progress | None]("progress")


def watch_progress(model: keras.Model, replicas: LocalReplicas) -> tuple[Progress, bool]:
    """Returns the counts of `model`, and whether they are new: then its step has to be traced anew."""
    known = PROGRESS.of(model)
    return (PROGRESS.set(model, Progress(replicas)), True) if known is None else (known, False)


@contextlib.contextmanager
def counting_reductions(model: keras.Model) -> Iterator[None]:
    """Counts the reductions that this thread traces or runs meanwhile, if the progress of `model` is watched."""
    with _COUNTING.carrying(None if _PAUSED.is_raised else PROGRESS.of(model)):
        yield


def counting_nothing() -> contextlib.AbstractContextManager[None]:
    """Steps that this thread traces or runs meanwhile are looked at: what they count is none of their results."""
    return _PAUSED.raised()


def current_progress() -> Progress | None:
    """Where reductions of the step at hand are counted; None where nobody watches."""
    return _COUNTING.value
