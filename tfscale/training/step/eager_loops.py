"""Does a loop by hand run eagerly, where nothing can be looked at, and how many rows has each replica there?"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfscale.replicas.made import made_under
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.step_context import Slot

_log = logging.getLogger(__name__)
_ROWS = Slot["Sequence[int] | None"]("rows_of_eager_loop")
TOLD = Fact[bool](ReplicaGroup, "told_of_eager_loop")
TOLD_OF_NUMBERS = Fact[bool](ReplicaGroup, "told_of_eager_numbers")


@contextlib.contextmanager
def telling_of_updates(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Says, once for a strategy, that what updates weights inside is not looked at, if it runs eagerly.

    Args:
        strategy: Whose replicas run it.
    """
    if not tf.executing_eagerly() or strategy.num_replicas_in_sync == 1 or TOLD.of(strategy):
        yield
        return
    before = _count_updates(strategy)
    yield
    if _count_updates(strategy) != before:
        TOLD.set(strategy, True)
        _log.warning(
            "this loop trains eagerly, replica by replica: nothing looks at whether it does what it does on one. A "
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
