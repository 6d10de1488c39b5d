"""How does a failure of one worker reach the others, which wait for it in a collective?

TensorFlow lets them wait until it misses the failed worker's heartbeats, about 10 s after that has ended, and then says
that a task is unhealthy. Here the failed worker says at once what happened.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from tfscale.cluster.peer_failure import describe_peer_failure
from tfscale.errors import ClusterError, TfscaleError
from tfscale.training import _tf_private
from tfscale.training.inputs import local_replicas, worker_rank

# So that it is found in what TensorFlow makes of it.
_MARK = "tfscale: worker"
_SHOWN_CHARACTERS = 1000


@contextlib.contextmanager
def failing_together(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Reports an exception of this worker to the others, and turns one that they reported into an error.

    Raises:
        ClusterError: When another worker failed; it holds that worker's rank and message.
    """
    replicas = local_replicas(strategy)
    if replicas.here == replicas.total:
        yield
        return
    try:
        yield
    except TfscaleError:
        # What we refuse, every worker refuses.
        raise
    except Exception as error:
        reported = re.search(rf"{_MARK} (\d+): (.*?)(?: \[type\.googleapis|\n\t \[\[|$)", str(error), re.DOTALL)
        if reported is not None:
            raise ClusterError(describe_peer_failure(int(reported[1]), reported[2].strip())) from error
        _tf_private.report_to_other_workers(f"{_MARK} {worker_rank(strategy)}: {_in_short(error)}")
        raise


def _in_short(error: Exception) -> str:
    """The type and what a person looks for: of TensorFlow's pages, the part about the data and the cause."""
    text = str(error)
    cause = re.search(r"Error in user-defined function.*", text, re.DOTALL)
    return f"{type(error).__name__}: {(cause[0] if cause else text)[:_SHOWN_CHARACTERS]}"
