"""How do all workers get the state that the chief alone reads?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tfscale.errors import RecoveryError
from tfscale.recovery.folder import Saved
from tfscale.recovery.votes import Workers


def read_together(workers: Workers, read: Callable[[], Saved | None]) -> Saved | None:
    """Returns on every worker what `read` returns on the chief: others may have another disk.

    Args:
        workers: Of the job; all must call it.
        read: Called by the chief alone.

    Raises:
        RecoveryError: On every worker, when `read` raises it.
    """
    saved, refusal = None, None
    if workers.is_chief:
        try:
            saved = read()
        except RecoveryError as error:
            refusal = str(error)
    facts, path, refusal = workers.from_chief([saved and saved.facts, saved and saved.path, refusal])
    if refusal is not None:
        raise RecoveryError(refusal)
    if facts is None:
        return None
    arrays = saved.arrays if saved else [_zeros(*described) for described in facts["arrays"]]
    return Saved(facts, workers.arrays_from_chief(arrays), path)


def _zeros(shape: Sequence[int], dtype: str) -> np.ndarray:
    return np.zeros(shape, tf.as_dtype(dtype).as_numpy_dtype)
