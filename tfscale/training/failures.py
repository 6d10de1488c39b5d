"""How does a failure of one worker reach the others, which wait for it in a collective?

TensorFlow lets them wait until it misses the failed worker's heartbeats, about 10 s after that has ended, and then says
that a task is unhealthy. Here the failed worker says at once what happened.
"""

from __future__ import annotations

import contextlib
import re
import weakref
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfscale.cluster.peer_failure import describe_peer_failure
from tfscale.errors import ClusterError, TfscaleError
from tfscale.training import _collective_private
from tfscale.training.inputs import local_replicas, worker_rank

# So that it is found in what TensorFlow makes of it.
_MARK = "tfscale: worker"
_SHOWN_CHARACTERS = 1000


# How long others may take to refuse the same.
_PATIENCE_S = 5.0
# The calls of each strategy so far; all workers make the same ones. And the strategies that are in one.
_CALLS: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_INSIDE: weakref.WeakSet[Any] = weakref.WeakSet()


@contextlib.contextmanager
def failing_together(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Reports an exception of this worker to the others, and turns one that they reported into an error.

    Raises:
        ClusterError: When another worker failed; it holds that worker's rank and message.
    """
    replicas = local_replicas(strategy)
    if replicas.here == replicas.total or strategy in _INSIDE:
        yield
        return
    _CALLS[strategy] = _CALLS.get(strategy, 0) + 1
    _INSIDE.add(strategy)
    try:
        yield
    except Exception as error:
        reported = re.search(rf"{_MARK} (\d+): (.*?)(?: \[type\.googleapis|\n\t \[\[|$)", str(error), re.DOTALL)
        if reported is not None:
            raise ClusterError(describe_peer_failure(int(reported[1]), reported[2].strip())) from error
        # What we refuse, every worker refuses, as a rule; then nobody waits, and the job may go on.
        if not (isinstance(error, TfscaleError) and _all_refuse(strategy)):
            # Where the job has failed already, the others know; this worker's own error is what is to be seen.
            with contextlib.suppress(tf.errors.OpError):
                _collective_private.report_to_other_workers(f"{_MARK} {worker_rank(strategy)}: {_in_short(error)}")
        raise
    finally:
        _INSIDE.discard(strategy)


def _all_refuse(strategy: tf.distribute.Strategy) -> bool:
    """Says that this worker refuses its present call, and hears whether all do."""
    replicas, rank = local_replicas(strategy), worker_rank(strategy)
    call = f"tfscale/refused/{_CALLS[strategy]}"
    others = [f"{call}/{other}" for other in range(replicas.total // replicas.here) if other != rank]
    return _collective_private.exchange_with_other_workers(f"{call}/{rank}", others, timeout_s=_PATIENCE_S)


def _in_short(error: Exception) -> str:
    """The type and what a person looks for: of TensorFlow's pages, the part about the data and the cause."""
    text = str(error)
    cause = re.search(r"Error in user-defined function.*", text, re.DOTALL)
    return f"{type(error).__name__}: {(cause[0] if cause else text)[:_SHOWN_CHARACTERS]}"
