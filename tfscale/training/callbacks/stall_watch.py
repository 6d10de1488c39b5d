"""A step does not end: which workers have not arrived?"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tfscale.cluster.heartbeats import Beat, Heartbeats
from tfscale.cluster.place import Place
from tfscale.cluster.secret import read_secret
from tfscale.cluster.stall import describe_stall, find_missing
from tfscale.cluster.verdict import STALLED, STUCK, Verdict
from tfscale.errors import CallbackError
from tfscale.recovery.one_call import ClosedByFit
from tfscale.replicas.introduction import introduce
from tfscale.replicas.peers import PeerWatch, find_watch
from tfscale.replicas.progress import Progress, watch_progress
from tfscale.replicas.replica_batch import local_replicas, worker_addresses, worker_rank

_log = logging.getLogger(__name__)

_BEAT_S = 1.0
_JOIN_S = 5.0
# So long a process may take to come back from what it does when the job has been ended.
_GRACE_S = 10.0


class StallWatch(ClosedByFit):
    """Says which workers have not arrived when a step takes longer than `stall_s`, and ends the job if asked to.

    Every worker counts the reductions that it has begun, and a thread of it tells the chief once a second, over a UDP
    port that the chief opens for the time of `fit`. The chief logs a warning: which workers are behind, and whether
    they are silent, between two steps, or in the step, reading or computing. Of a chief that is silent itself the
    others say so. Each worker must have the callback, as `dp.callbacks` gives it.

    Args:
        stall_s: From how many seconds on a step is said to stall. The first steps make graphs, and may take long.
        ends_after_s: From how many seconds on the job is ended, on all workers, with a `ClusterError` that names the
            worker for which the others wait. A process that does not come back from what it does within 10 s more
            writes where it is and ends, with status 1. None ends nothing: a callback that saves may take long.
        clock: Seconds, from anywhere.

    Raises:
        CallbackError: `stall_s` is no positive number, or `ends_after_s` none that is at least `stall_s`.

    Example:
        >>> import keras, numpy as np, tfscale
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> watch = tfscale.callbacks.StallWatch(stall_s=60)
        >>> history = model.fit(np.ones((8, 1)), np.ones(8), verbose=0, callbacks=[watch])
    """

    several_steps_safe = True

    def __init__(
        self,
        stall_s: float = 120.0,
        *,
        ends_after_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__()
        if not _is_positive(stall_s):
            raise CallbackError(f"`stall_s` must be a positive number of seconds.\nReceived: stall_s={stall_s!r}.")
        if ends_after_s is not None and not (_is_positive(ends_after_s) and ends_after_s >= stall_s):
            raise CallbackError(
                "`ends_after_s` must be a number of seconds, at least `stall_s`, or None.\n"
                f"Received: ends_after_s={ends_after_s!r}, stall_s={stall_s!r}."
            )
        self._limits = _Limits(float(stall_s), None if ends_after_s is None else float(ends_after_s))
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
            progress, is_new = watch_progress(self.model, local_replicas(strategy))
            if is_new:
                self.model.make_train_function(force=True)
        heartbeats = Heartbeats(rank, len(workers), read_secret(os.environ, workers), self._clock)
        if len(workers) > 1:
            introduce(heartbeats, strategy, workers, rank)
        peers = find_watch(strategy) if len(workers) > 1 else None
        self._thread = _WatchThread(self._limits, progress, heartbeats, workers, peers, self._clock)
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

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Watches what all workers do together between two steps as if it were the next one."""
        thread = self._thread
        if thread is None:
            yield
            return
        # It has arrived where the others are waited for, and the model's own counts know nothing of it.
        thread.step, thread.arrived, thread.is_in_step = thread.step + 1, 1, True
        try:
            yield
        finally:
            thread.step, thread.arrived, thread.is_in_step = thread.step - 1, 0, False

    def on_train_end(self, logs: Any = None) -> None:
        """Ends the thread."""
        del logs
        self.close()

    def close(self) -> None:
        """Ends the thread; a prepared model's `fit` calls it when it ends with an error, too."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None


@dataclass(frozen=True)
class _Limits:
    """From when on a step is said to stall, and from when on it ends the job."""

    stall_s: float
    ends_after_s: float | None


def _is_positive(seconds: Any) -> bool:
    return not isinstance(seconds, bool) and isinstance(seconds, int | float) and 0 < seconds < float("inf")


class _WatchThread:
    """Looks once a second how far this worker is. Knows neither callback nor model, so that it keeps neither alive."""

    def __init__(
        self,
        limits: _Limits,
        progress: Progress | None,
        heartbeats: Heartbeats,
        workers: list[str],
        peers: PeerWatch | None,
        clock: Callable[[], float],
    ):
        self._stall_s, self._ends_after_s = limits.stall_s, limits.ends_after_s
        self._peers = peers
        self._ends_at_s = float("inf")
        self._beat_s = min(_BEAT_S, self._stall_s / 4)
        self._progress = progress
        self._heartbeats = heartbeats
        self._workers = workers
        self._clock = clock
        self._is_over = threading.Event()
        # A daemon: a step that never ends must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, daemon=True, name="tfscale-stall-watch")
        self._report_after_s = self._stall_s
        self.step = 0
        self.arrived = 0
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
        while not self._heartbeats.wait(self._is_over, self._beat_s):
            arrived, left = self._progress.read() if self._progress is not None else (0, 0)
            arrived += self.arrived
            now_s = self._clock()
            if (self.step, arrived, left) != seen or not self.is_in_step:
                seen, since_s = (self.step, arrived, left), now_s
            own = Beat(*seen, waiting_s=now_s - since_s)
            self._heartbeats.exchange(own)
            self._report()
            if self._ends_after_s is not None:
                self._end_job(self._ends_after_s, now_s)

    def _end_job(self, ends_after_s: float, now_s: float) -> None:
        """Accuses whoever does not come, and ends this process where its `fit` goes on all the same."""
        if now_s >= self._ends_at_s:
            _end_process()
        longest_s = max(beat.waiting_s for beat in self._heartbeats.beats.values())
        if self._peers is None:
            if longest_s >= ends_after_s:
                _log.critical("A step takes longer than `ends_after_s` = %g s of `StallWatch`.", ends_after_s)
                _end_process()
            return
        if longest_s >= ends_after_s and self._speaks and self._peers.verdict is None:
            workers, silent_s = self._judged()
            missing = find_missing(workers, self._heartbeats.beats, silent_s, self._beat_s)
            rank = missing[0] if missing else self._peers.rank
            place = self._peers.place_of(rank) or Place()
            own = self._peers.place
            self._peers.accuse(Verdict(rank, STALLED if missing else STUCK, place, own, seconds=int(longest_s)))
        if self._peers.verdict is not None:
            self._ends_at_s = min(self._ends_at_s, now_s + _GRACE_S)

    def _judged(self) -> tuple[dict[int, str], dict[int, float]]:
        """Of whom this worker hears: their addresses, and for how long it has not."""
        ranks = range(len(self._workers)) if self._heartbeats.rank == 0 else [0, self._heartbeats.rank]
        return {rank: self._workers[rank] for rank in ranks}, {rank: self._heartbeats.silent_s(rank) for rank in ranks}

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
        workers, silent_s = self._judged()
        _log.warning("%s", describe_stall(workers, beats, silent_s, self._stall_s, self._beat_s))

    @property
    def _speaks(self) -> bool:
        """The chief speaks for all; of a silent chief, all others do."""
        return self._heartbeats.rank == 0 or self._heartbeats.silent_s(0) > max(self._stall_s, 5 * self._beat_s)


def _end_process() -> None:
    """Writes where each thread is, and ends the process: what hangs in a system call ends in no other way."""
    if sys.__stderr__ is not None:
        # Where there is no file behind it there is nothing to write to.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            faulthandler.dump_traceback(sys.__stderr__, all_threads=True)
    os._exit(1)
