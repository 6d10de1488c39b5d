"""A step does not end: which workers have not arrived?"""

from __future__ import annotations

import atexit
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfscale.cluster.heartbeats import Beat, Heartbeats
from tfscale.cluster.stall import describe_stall
from tfscale.errors import ScalingError
from tfscale.training.all_reduce import all_gather
from tfscale.training.callbacks.one_call import ClosedByFit
from tfscale.training.inputs import local_replicas, worker_addresses, worker_rank
from tfscale.training.progress import Progress, watch_progress

_log = logging.getLogger(__name__)

_BEAT_S = 1.0
_JOIN_S = 5.0


class StallWatch(ClosedByFit):
    """Says which workers have not arrived when a step takes longer than `stall_s`. It ends nothing.

    Every worker counts the reductions that it has begun, and a thread of it tells the chief once a second, over a UDP
    port that the chief opens for the time of `fit`. The chief logs a warning: which workers are behind, and whether
    they are silent, between two steps, or in the step, reading or computing. Of a chief that is silent itself the
    others say so. Each worker must have the callback, as `dp.callbacks` gives it.

    Args:
        stall_s: From how many seconds on a step is said to stall. The first steps make graphs, and may take long.
        clock: Seconds, from anywhere.

    Raises:
        ScalingError: `stall_s` is no positive number.

    Example:
        >>> import keras, numpy as np, tfscale
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> watch = tfscale.callbacks.StallWatch(stall_s=60)
        >>> history = model.fit(np.ones((8, 1)), np.ones(8), verbose=0, callbacks=[watch])
    """

    def __init__(self, stall_s: float = 120.0, *, clock: Callable[[], float] = time.monotonic):
        super().__init__()
        if isinstance(stall_s, bool) or not isinstance(stall_s, int | float) or not 0 < stall_s < float("inf"):
            raise ScalingError(f"`stall_s` must be a positive number of seconds.\nReceived: stall_s={stall_s!r}.")
        self._stall_s = float(stall_s)
        self._clock = clock
        self._first = 0
        self._thread: _WatchThread | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Lets the step count, once per model, and starts the thread."""
        del logs
        self.close()
        strategy = self.model.distribute_strategy
        progress, workers, rank = None, ["localhost"], 0
        if strategy is not None and strategy.num_replicas_in_sync > 1:
            workers, rank = worker_addresses(strategy), worker_rank(strategy)
            progress, is_new = watch_progress(self.model, local_replicas(strategy).first)
            if is_new:
                self.model.make_train_function(force=True)
        heartbeats = Heartbeats(rank, len(workers), self._clock)
        if len(workers) > 1:
            _introduce(heartbeats, strategy, workers, rank)
        self._thread = _WatchThread(self._stall_s, progress, heartbeats, workers, self._clock)
        self._thread.begin()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Notes that a step begins."""
        del logs
        if self._thread is not None:
            self._thread.step += 1
            self._thread.is_in_step = True
        self._first = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes that it ends; `batch` is the last of several steps that run in one call."""
        del logs
        if self._thread is not None:
            self._thread.is_in_step = False
            self._thread.step += batch - self._first

    def on_train_end(self, logs: Any = None) -> None:
        """Ends the thread."""
        del logs
        self.close()

    def close(self) -> None:
        """Ends the thread; a prepared model's `fit` calls it when it ends with an error, too."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None


class _WatchThread:
    """Looks once a second how far this worker is. Knows neither callback nor model, so that it keeps neither alive."""

    def __init__(
        self,
        stall_s: float,
        progress: Progress | None,
        heartbeats: Heartbeats,
        workers: list[str],
        clock: Callable[[], float],
    ):
        self._stall_s = stall_s
        self._beat_s = min(_BEAT_S, stall_s / 4)
        self._progress = progress
        self._heartbeats = heartbeats
        self._workers = workers
        self._clock = clock
        self._is_over = threading.Event()
        # A daemon: a step that never ends must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, daemon=True, name="tfscale-stall-watch")
        self._report_after_s = stall_s
        self.step = 0
        self.is_in_step = False

    def begin(self) -> None:
        self._thread.start()
        # It must not read a variable while TensorFlow is taken down.
        atexit.register(self.end)

    def end(self) -> None:
        self._is_over.set()
        atexit.unregister(self.end)
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)
        self._heartbeats.close()

    def _run(self) -> None:
        seen: tuple[int, ...] = ()
        since_s = self._clock()
        while not self._is_over.wait(self._beat_s):
            arrived, left = self._progress.read() if self._progress is not None else (0, 0)
            now_s = self._clock()
            if (self.step, arrived, left) != seen or not self.is_in_step:
                seen, since_s = (self.step, arrived, left), now_s
            own = Beat(*seen, waiting_s=now_s - since_s)
            self._heartbeats.exchange(own)
            self._report()

    def _report(self) -> None:
        beats = self._heartbeats.beats
        longest_s = max(beat.waiting_s for beat in beats.values())
        if longest_s < self._stall_s:
            if self._report_after_s > self._stall_s and self._speaks:
                _log.warning("The step goes on.")
            self._report_after_s = self._stall_s
            return
        if longest_s < self._report_after_s or not self._speaks:
            return
        # Again after twice the time: a night's stall fills no disk.
        self._report_after_s = 2 * longest_s
        ranks = range(len(self._workers)) if self._heartbeats.rank == 0 else [0, self._heartbeats.rank]
        workers = {rank: self._workers[rank] for rank in ranks}
        silent_s = {rank: self._heartbeats.silent_s(rank) for rank in ranks}
        _log.warning("%s", describe_stall(workers, beats, silent_s, self._stall_s, self._beat_s))

    @property
    def _speaks(self) -> bool:
        """The chief speaks for all; of a silent chief, all others do."""
        return self._heartbeats.rank == 0 or self._heartbeats.silent_s(0) > max(self._stall_s, 5 * self._beat_s)


def _introduce(heartbeats: Heartbeats, strategy: tf.distribute.Strategy, workers: list[str], rank: int) -> None:
    """Tells every worker, in one collective, where the chief listens and what is the token of this job."""
    own = [0, 0]
    if rank == 0:
        own[1] = random.SystemRandom().getrandbits(62)
        own[0] = heartbeats.listen(own[1])

    @tf.function(autograph=False)
    def gather() -> tf.Tensor:
        return strategy.run(lambda: all_gather(tf.constant([own], tf.int64)))

    port, token = strategy.experimental_local_results(gather())[0].numpy().tolist()[0]
    if rank > 0:
        heartbeats.connect(workers[0].rpartition(":")[0].strip("[]"), port, token)
