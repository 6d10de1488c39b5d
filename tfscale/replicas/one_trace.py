"""Can the step of one replica be called for all, or must each be traced by itself?

A step that is traced once costs one replica's time in Python, however many there are.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.framework.one_trace import Keys, NotAlikeError, OneTrace, one_trace, regroup
from tfscale.framework.replicas import EachByItself
from tfscale.replicas.all_reduce import replica_id
from tfscale.replicas.made import made_under
from tfscale.replicas.replica_batch import local_replicas
from tfscale.replicas.turns import in_order_of_its_own
from tfscale.step_context import Slot

_log = logging.getLogger(__name__)
_VARIABLE = "TFSCALE_TRACE"
# For the first `strategy.run`, which takes it out.
_GIVEN = Slot[list[Sequence[Any]]]("parts", list, shown=len)


@contextlib.contextmanager
def on_parts(parts: Sequence[Any]) -> Iterator[None]:
    """Says that what `strategy.run` gets meanwhile asks `own_part` for what it is about, and for nothing else."""
    with _GIVEN.carrying([parts]):
        yield


def own_part(parts: Sequence[Any], first: int) -> Any:
    """What the replica being traced or run is to work on."""
    one = one_trace()
    return parts[replica_id() - first] if one is None else one.part


def run_once_for_all(strategy: tf.distribute.Strategy, step: Callable[[], Any], each_by_itself: EachByItself) -> Any:
    """Runs what `strategy.run` got: traced once where it says what it is about (`on_parts`), else by each replica.

    Args:
        strategy: Whose replicas run it.
        step: What each is to do.
        each_by_itself: TensorFlow's way to have each do it, given what is to be put around the step.

    Returns:
        What `strategy.run` is to return.
    """
    apart = functools.partial(each_by_itself, in_order_of_its_own)
    parts = _GIVEN.value.pop() if _GIVEN.value else None
    if parts is None or tf.executing_eagerly() or _is_traced_by_each():
        return apart()
    kinds = [_kind(part) for part in parts]
    if len(set(kinds)) == len(parts):  # A trace of its own for each, either way.
        return apart()
    try:
        traced = _trace(strategy, step, parts, kinds)
    except NotAlikeError as error:
        _log.info("each replica's step is traced by itself: %s", error)
        return apart()
    except Exception as error:  # What is wrong with the step will show where each replica's is traced.
        _log.info("each replica's step is traced by itself: %s: %s", type(error).__name__, error)
        return apart()
    # From here on there is no way back: what was called will run, and wait for the others.
    return regroup([one.call(replica, part) for replica, (one, part) in enumerate(zip(traced, parts, strict=True))])


def _is_traced_by_each() -> bool:
    """Whether the environment asks for a trace of each replica's own."""
    asked = os.environ.get(_VARIABLE, "once")
    if asked not in ("once", "each"):
        raise ModelError(
            f"`{_VARIABLE}` says whether a step is traced once for all replicas, or by each of them.\n"
            f"Received: {_VARIABLE}={asked!r}. Write 'once', 'each', or nothing."
        )
    return asked == "each"


def _trace(
    strategy: tf.distribute.Strategy, step: Callable[[], Any], parts: Sequence[Any], kinds: Sequence[Any]
) -> list[OneTrace]:
    """For each replica the trace that is called for it: one for all whose parts are of one kind."""
    traced: dict[Any, OneTrace] = {}
    keys, copies = Keys(), _copies(strategy)
    for replica, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
        if kind not in traced:
            traced[kind] = OneTrace(strategy, replica, local_replicas(strategy).first, copies, keys)
            traced[kind].trace(step, part)
    if len({frozenset(one.sent.items()) for one in traced.values()}) > 1:
        raise NotAlikeError("with other rows it sends more often")
    return [traced[kind] for kind in kinds]


def _copies(strategy: tf.distribute.Strategy) -> list[list[Any]]:
    """The handles of each variable, by replica."""
    copies = [strategy.experimental_local_results(each) for each in made_under(strategy).variables]
    return [[copy.handle for copy in each] for each in copies if len(each) == len(strategy.extended.worker_devices)]


def _kind(part: Any) -> Any:
    """Parts of one kind have tensors of the same shapes, as far as they are known, and are equal otherwise."""
    leaves = tf.nest.flatten(part, expand_composites=True)
    return tuple((leaf.dtype, str(leaf.shape)) if tf.is_tensor(leaf) else repr(leaf) for leaf in leaves)
