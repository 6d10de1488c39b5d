"""How long do the epochs of a loop written by hand take, and with which loss do they end?"""

from __future__ import annotations

import time
from collections.abc import Callable


def clocked(epoch: Callable[[int], float]) -> Callable[[int, int], tuple[float, float]]:
    """Makes a block, (steps per epoch, epochs) -> seconds, last loss, of one epoch: steps -> loss."""

    def block(steps_per_epoch: int, epochs: int) -> tuple[float, float]:
        # One more epoch before the clock starts, as `fit` gets.
        epoch(steps_per_epoch)
        start_s = time.perf_counter()
        for _ in range(epochs):
            loss = epoch(steps_per_epoch)
        return time.perf_counter() - start_s, loss

    return block
