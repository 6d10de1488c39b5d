"""Can the step of one replica be called for all, or must each be traced by itself?

A step that is traced once costs one replica's time in Python, however many there are.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfscale.framework.one_trace import NotAlikeError, OneTrace, one_trace, regroup
from tfscale.training.all_reduce import replica_id
from tfscale.training.inputs import local_replicas
from tfscale.training.made import made_under

_log = logging.getLogger(__name__)


class _Given(threading.local):
    parts: Sequence[Any] | None = None


_GIVEN = _Given()


@contextlib.contextmanager
def on_parts(parts: Sequence[Any]) -> Iterator[None]:
    """Says that what `strategy.run` gets meanwhile asks `own_part` for what it is about, and for nothing else."""
    outer, _GIVEN.parts = _GIVEN.parts, parts
    try:
        yield
    finally:
        _GIVEN.parts = outer


def own_part(parts: Sequence[Any], first: int) -> Any:
    """What the replica being traced or run is to work on."""
    one = one_trace()
    return parts[replica_id() - first] if one is None else one.part


def run_once_for_all(
    strategy: tf.distribute.Strategy, fn: Callable[[], Any], each_by_itself: Callable[[], Any]
) -> Any:
    """Runs a step on the replicas of this process."""
    parts, _GIVEN.parts = _GIVEN.parts, None
    if parts is None or len(parts) == 1 or tf.executing_eagerly():
        return each_by_itself()
    try:
        return _called(strategy, fn, parts)
    except NotAlikeError as error:
        _log.info("each replica's step is traced by itself: %s", error)
        print("NOT ALIKE", error)
        return each_by_itself()


def _called(strategy: tf.distribute.Strategy, fn: Callable[[], Any], parts: Sequence[Any]) -> Any:
    first = local_replicas(strategy).first
    variables = [strategy.experimental_local_results(each) for each in made_under(strategy).variables]
    copies = [[each.handle for each in copies] for copies in variables if len(copies) == len(parts)]
    traced: dict[Any, OneTrace] = {}
    results = []
    for replica, part in enumerate(parts):
        kind = _kind(part)
        if kind not in traced:
            traced[kind] = OneTrace(strategy, replica, first, copies)
            traced[kind].trace(fn, part)
    for replica, part in enumerate(parts):
        results.append(traced[_kind(part)].call(replica, part))
    return regroup(results)


def _kind(part: Any) -> Any:
    leaves = tf.nest.flatten(part, expand_composites=True)
    return tuple((each.dtype, tuple(each.shape)) if tf.is_tensor(each) else repr(each) for each in leaves)
