"""Does a loop by hand train eagerly, where nothing can be looked at?"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import tensorflow as tf

from tfscale.replicas.made import made_under
from tfscale.replicas.owners import Fact, ReplicaGroup

_log = logging.getLogger(__name__)
TOLD = Fact[bool](ReplicaGroup, "told_of_eager_loop")


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


def _count_updates(strategy: tf.distribute.Strategy) -> int:
    return sum(int(optimizer.iterations) for optimizer in made_under(strategy).optimizers)
