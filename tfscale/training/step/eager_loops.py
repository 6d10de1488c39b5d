"""Does a loop by hand run eagerly, is it looked at there, and how many rows has each replica?"""

from __future__ import annotations

import collections
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfscale.errors import TfscaleError
from tfscale.replicas.made import made_under
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.replica_batch import local_replicas
from tfscale.step_context import Slot
from tfscale.training.step.due import is_due
from tfscale.training.step.hand_loops import code_of

_log = logging.getLogger(__name__)
_ROWS = Slot["Sequence[int] | None"]("rows_of_eager_loop")
_CALLS = Fact["collections.Counter[Any]"](ReplicaGroup, "calls_of_eager_loops", lambda calls: f"{len(calls)} functions")
_LOOKED_AT = Fact[set[Any]](ReplicaGroup, "eager_loops_looked_at", lambda codes: f"{len(codes)} functions")
TOLD = Fact[bool](ReplicaGroup, "told_of_eager_loop")
TOLD_OF_NUMBERS = Fact[bool](ReplicaGroup, "told_of_eager_numbers")


def look_at_traced(strategy: tf.distribute.Strategy, function: Any, traced: Callable[[], Any]) -> None:
    """Has a function traced that is about to run eagerly, the 1st, 2nd, 4th ... time: its graph is looked at.

    Args:
        strategy: Whose replicas run it.
        function: As given to `strategy.run`.
        traced: Runs it in a graph, where it is looked at; changes nothing in Python.

    Raises:
        TfscaleError: What such a loop ends with in a graph.
    """
    replicas = local_replicas(strategy)
    if replicas.total == 1 or replicas.on_several_workers:
        # One that fails on a worker while it is traced would leave the others waiting.
        return
    # The same code with another model is another loop.
    code, made = code_of(function), made_under(strategy).count
    counts = _CALLS.ensure(strategy, collections.Counter())
    counts[code, made] += 1
    if not is_due(counts[code, made]):
        return
    try:
        tf.function(traced).get_concrete_function()
        _LOOKED_AT.ensure(strategy, set()).add(code)
    except TfscaleError:
        raise
    # Code that reads numbers in Python has no graph, and may raise anything there.
    except Exception as error:
        _LOOKED_AT.ensure(strategy, set()).discard(code)
        _log.info("the loop by hand runs eagerly, and has no graph: %s: %s", type(error).__name__, error)


@contextlib.contextmanager
def telling_of_updates(strategy: tf.distribute.Strategy, function: Any) -> Iterator[None]:
    """Says, once for a strategy, that what updates weights inside is not looked at, if it runs eagerly.

    Args:
        strategy: Whose replicas run it.
        function: As given to `strategy.run`.
    """
    is_one = not tf.executing_eagerly() or strategy.num_replicas_in_sync == 1
    if is_one or TOLD.of(strategy) or code_of(function) in _LOOKED_AT.of(strategy, set()):
        yield
        return
    before = _count_updates(strategy)
    yield
    if _count_updates(strategy) != before:
        TOLD.set(strategy, True)
        _log.warning(
            "this loop trains eagerly, replica by replica, and has no graph (or runs on several workers): nothing "
            "looks at whether it does what it does on one. A "
            "loss that is a mean of a replica's own rows, or gradients that are clipped before they are added up, "
            "train otherwise there without a word. Put `@tf.function` on the function that calls `strategy.run`: such "
            "a loop is looked at, and faster"
        )


def warn_of_numbers(strategy: tf.distribute.Strategy, results: Any) -> None:
    """Says, once for a strategy, that nothing tells what numbers are which replicas return of a step that runs eagerly.

    Args:
        strategy: Whose replicas ran it, of which each was given rows of its own.
        results: What they returned.
    """
    if TOLD.of(strategy) or TOLD_OF_NUMBERS.of(strategy):
        return
    own = [strategy.experimental_local_results(each) for each in tf.nest.flatten(results)]
    if any(len(each) > 1 and all(map(_is_number, each)) and len(set(map(float, each))) > 1 for each in own):
        TOLD_OF_NUMBERS.set(strategy, True)
        _log.warning(
            "a loop that runs eagerly returns a number of each replica's own rows, and nothing tells whether it is a "
            'part of a sum, for `strategy.reduce("SUM", ...)`, or a mean, for `"MEAN"`: the wrong one of the two is a '
            "wrong number without a word. Put `@tf.function` on the function that calls `strategy.run`: there it is "
            "looked at"
        )


def _is_number(value: Any) -> bool:
    return bool(tf.is_tensor(value) and value.shape.rank == 0 and value.dtype.is_floating)


def counting_rows(rows: Sequence[Any]) -> contextlib.AbstractContextManager[None]:
    """Lets means in an eager step count each replica by its rows.

    Args:
        rows: Of each replica of this process; no integers where its arguments do not tell.
    """
    return _ROWS.carrying([*rows] if tf.executing_eagerly() and all(isinstance(each, int) for each in rows) else None)


def rows_of_eager_loop() -> Sequence[int] | None:
    """Those of `counting_rows`, in the thread that brings the replicas together; None outside, and in graphs."""
    return _ROWS.value if tf.executing_eagerly() else None


def _count_updates(strategy: tf.distribute.Strategy) -> int:
    return sum(int(optimizer.iterations) for optimizer in made_under(strategy).optimizers)
