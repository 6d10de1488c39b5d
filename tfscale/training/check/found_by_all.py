"""What has a look at a step found on any worker, and what if one of them cannot even look?"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfscale.errors import ParityError, TfscaleError
from tfscale.exact.divided_calls import DrawsBesideError
from tfscale.replicas.agreement import first_of_workers
from tfscale.replicas.failures import all_come_to


class FoundByAll:
    """Has every worker look, and tells all of them what was found.

    Args:
        strategy: Of the job.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self._strategy = strategy
        self._num_failed = 0

    def __call__(self, look: Callable[[], str]) -> str:
        """What the first worker has found that has found anything, or an empty text.

        Args:
            look: Returns what is to be said; a `ParityError` is said as well.

        Raises:
            TfscaleError: This worker's own, other than a `ParityError`; or one in which the step ended here alone,
                while it ran: the others wait in its collectives, and hear of it by the end of the call.
        """
        other: TfscaleError | None = None
        try:
            message = look()
        except DrawsBesideError:
            # Seen in its graph, which is that of every worker.
            raise
        except TfscaleError as error:
            if isinstance(error.__cause__, tf.errors.OpError) and not self._fails_on_all():
                raise
            message, other = str(error), None if isinstance(error, ParityError) else error
        message = first_of_workers(self._strategy, message)
        if other is not None:
            raise other
        return message

    def _fails_on_all(self) -> bool:
        self._num_failed += 1
        return all_come_to(self._strategy, f"failed {self._num_failed}")
