"""When do the steps of a `fit` end?"""

from __future__ import annotations

import time
from typing import Any

import keras


class StepClock(keras.callbacks.Callback):
    """Takes the time, and the processor's, when `fit` begins and after each step.

    Args:
        reads_loss: Whether it waits for the loss of a step first, so that the step has ended on every device.
    """

    def __init__(self, *, reads_loss: bool = False) -> None:
        super().__init__()
        self._reads_loss = reads_loss
        self.times: list[tuple[float, float]] = []

    def on_train_begin(self, logs: Any = None) -> None:
        """Takes both."""
        del logs
        self._note()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Takes both."""
        del batch
        if self._reads_loss:
            float(logs["loss"])
        self._note()

    def first(self) -> tuple[float, float]:
        """Seconds from the beginning until the end of the first step, on the clock and of the processor."""
        (begin_s, begin_cpu_s), (end_s, end_cpu_s) = self.times[:2]
        return end_s - begin_s, end_cpu_s - begin_cpu_s

    def _note(self) -> None:
        self.times.append((time.perf_counter(), time.process_time()))
