"""Can the job go on, as far as this worker hears from the others; and if not, because of whom?

From a job's first call of `fit` or the like on, or the first step of a loop of its own, a thread of every worker tells
the chief once a second where that worker is, and hears where the chief is. Whoever finds that nobody can go on ends the
collectives that this worker waits in, and the error of the call says why.
"""

from __future__ import annotations

import atexit
import dataclasses
import logging
import os
import threading
import time
from collections.abc import Callable

import tensorflow as tf

from tfscale.cluster.doors import knock
from tfscale.cluster.heartbeats import Beat, Heartbeats
from tfscale.cluster.memory import read_memory_mib
from tfscale.cluster.passes import LabelsSeen, PassesRead
from tfscale.cluster.place import CALLS, ON_BATCH, Place
from tfscale.cluster.secret import read_secret
from tfscale.cluster.verdict import (
    Verdict,
    at_end_of,
    describe_verdict,
    judge_doors,
    judge_labels,
    judge_passes,
    judge_places,
    judge_silence,
    judge_stuck,
)
from tfscale.framework.collectives import abort_collectives
from tfscale.replicas.introduction import introduce, introduce_to_who_asks
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.replica_batch import local_replicas, worker_addresses, worker_rank

_log = logging.getLogger(__name__)

_BEAT_S = 1.0
# TensorFlow itself gives up after 10 s without a heartbeat, where it hears of it. A thread of Python may be late: where
# the system still answers at a worker's port, a callback may hold Python's lock, as one does that pickles much.
_SILENCE_S, _HOLDING_S = 12.0, 120.0
# After a step has failed: when it is too early to accuse anybody, when all who live have been heard of, and when those
# who are no chief stop waiting for its word.
_EARLY_S, _HEARD_S, _LATE_S, _PATIENCE_S = 0.3, 1.5, 3.0, 4.0
_KNOCK_S = 2.0
# So long a worker that has come to its end waits for the others, of whom one may be gone.
_ENDING_S = 5.0
# How long a loop's first step waits for others who have read nothing yet, and how often it looks; seldom among many.
_FIRST_LABELS_S, _LOOK_S, _MANY = 2.0, 0.05, 32
# So many seconds the chief stays to tell the others.
_TELLING_S = 1.5


class PeerWatch:
    """What this worker knows of the others. The thread keeps neither strategy nor model alive.

    Args:
        rank: Of this worker.
        workers: Addresses by rank.
        heartbeats: How it hears of the others.
        passes: Over data, of this worker.
        abort: Makes the collectives of this process end with a message.
        clock: Seconds, from anywhere.
    """

    def __init__(
        self,
        rank: int,
        workers: list[str],
        heartbeats: Heartbeats,
        passes: PassesRead,
        abort: Callable[[str], None] = abort_collectives,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.rank = rank
        self.workers = workers
        self.verdict: Verdict | None = None
        self._heartbeats = heartbeats
        self._passes = passes
        self._abort = abort
        self._clock = clock
        self._place = Place()
        self._totals: dict[int, int] = {}
        self._is_aborted = self._is_loop = self._has_warned = False
        # The main thread and the watch's own speak over one socket.
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        # A daemon: a step that never ends must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, daemon=True, name="tfscale-peer-watch")

    def begin(self) -> None:
        """Starts the thread."""
        self._thread.start()
        atexit.register(self.end)

    def end(self) -> None:
        """Says a last time where this worker is, and ends the thread."""
        self._is_over.set()
        atexit.unregister(self.end)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(2 * _BEAT_S)
        self._let_others_end()
        self.beat()
        if self._is_loop and self.verdict is None and (found := self._hear_first_labels()) is not None:
            # A job that was over before this could be told.
            _log.error("%s What has been trained is not what one replica trains.", self._said(found))
        self._heartbeats.close()

    def _let_others_end(self) -> None:
        """Waits, for seconds at most, until all have ended the last call: they may still take of this one's sums."""
        deadline_s = self._clock() + _ENDING_S
        while self.verdict is None and self._clock() < deadline_s:
            self.beat()
            told = self._place if self.rank == 0 else self._places().get(0)
            is_alone = self.rank > 0 and self._heartbeats.silent_s(0) > _HEARD_S
            if is_alone or told is None or max(told.all_ended, self._all_ended()) >= self._place.ended:
                return
            time.sleep(_LOOK_S * (1 + len(self.workers) // _MANY))

    def _all_ended(self) -> int:
        """Calls that all have ended, as the chief knows it."""
        places = self._places()
        if self.rank > 0 or len(places) < len(self.workers) - 1:
            return 0
        return min(place.ended for place in (self._place, *places.values()))

    def begin_call(self, name: str) -> None:
        """Notes that a call begins."""
        before = self._place
        self._totals = {}
        self._place = Place(call=before.call + 1, kind=CALLS.index(name), last_total=before.total)

    def end_call(self) -> None:
        """Notes that it has ended, however it did, and says so; of a call for each step the next beat does."""
        is_step = CALLS[self._place.kind] in ON_BATCH
        self._place = dataclasses.replace(self._place, kind=0)
        if not is_step:
            self.beat()

    def begin_loop(self) -> None:
        """Notes that steps are made outside of calls, too, from now on."""
        self._is_loop = True

    def compare_first_labels(self) -> None:
        """Waits, for seconds at most, until the others have read data as well: before a first step is made of them."""
        # The chief can answer those only of whom it has heard.
        self.beat()
        found = self._hear_first_labels()
        if found is not None:
            self.accuse(found)

    def _hear_first_labels(self) -> Verdict | None:
        """Waits until the others have said what they read, for seconds at most; returns what speaks against one."""
        # The chief hears of all, the others of the chief.
        others = range(1, len(self.workers)) if self.rank == 0 else range(1)
        deadline_s = self._clock() + _FIRST_LABELS_S
        while self._passes.last_labels.data:
            found = self.verdict or self._judge_labels()
            told = self._labels_told()
            is_heard = all(rank in told and told[rank].data for rank in others)
            if found is not None or is_heard or self._clock() > deadline_s:
                return found
            time.sleep(_LOOK_S * (1 + len(self.workers) // _MANY))
            self.beat()
        return None

    def begin_batch(self, step: int | None = None) -> None:
        """Notes a batch of training, the step of that number, or one of an evaluation."""
        place = self._place
        self._place = dataclasses.replace(place, step=place.step if step is None else step, total=place.total + 1)

    def begin_epoch(self, epoch: int) -> None:
        """Notes that an epoch begins, from 1."""
        self._place = dataclasses.replace(self._place, epoch=epoch, step=0)

    def end_epoch(self) -> None:
        """Notes that it has ended."""
        place = self._place
        self._totals[place.epoch] = place.total
        self._place = dataclasses.replace(place, ended_epochs=place.epoch, ended_total=place.total)

    def know_model(self, digest: int) -> None:
        """Notes what this worker trains."""
        self._place = dataclasses.replace(self._place, model=digest)

    def place_of(self, rank: int) -> Place | None:
        """Where a worker was last heard of; None where it never was, or where this worker does not hear of it."""
        beat = self._heartbeats.beats.get(rank)
        return None if beat is None else beat.place

    @property
    def place(self) -> Place:
        """Where this worker is."""
        return self._place

    def beat(self) -> None:
        """Says where this worker is, and takes what has come."""
        used_mib, free_mib = read_memory_mib()
        all_ended = self._all_ended()
        with self._lock:
            place = dataclasses.replace(self._place, used_mib=used_mib, free_mib=free_mib)
            place = at_end_of(place, self._passes.last_ended)
            place = dataclasses.replace(place, all_ended=all_ended)
            self._heartbeats.exchange(Beat(place=place, verdict=self.verdict, labels=self._passes.last_labels))
            if self.verdict is None:
                told = [beat.verdict for rank, beat in sorted(self._heartbeats.beats.items()) if rank != self.rank]
                self.verdict = next((verdict for verdict in told if verdict is not None), None)

    def accuse(self, verdict: Verdict) -> None:
        """Ends the job because of a worker, unless there is a reason already."""
        self.verdict = self.verdict or verdict
        self.beat()
        self._abort_once()

    def find_blamed(self) -> Verdict | None:
        """Finds out why a step of this worker has failed, in a few seconds; None where nothing speaks against anybody.

        The chief hears all, so the others wait for its word, unless it is the chief that is gone.
        """
        start_s, knock_s = self._clock(), _EARLY_S
        doors: dict[int, str] = {}
        while self.verdict is None and (waited_s := self._clock() - start_s) < _PATIENCE_S:
            self.beat()
            if waited_s > knock_s:
                others = {rank: address for rank, address in enumerate(self.workers) if rank != self.rank}
                doors = knock(others, _KNOCK_S)
                knock_s = waited_s + 1.0
                self.beat()
            if self.verdict is None:
                self.verdict = self._judge_failure(doors, self._clock() - start_s)
            if self.verdict is None:
                time.sleep(0.1)
        self.tell()
        return self.verdict

    def _judge_failure(self, doors: dict[int, str], waited_s: float) -> Verdict | None:
        if self.rank > 0 and 0 not in doors and waited_s < _LATE_S:
            return None
        own, places = self._place, self._places()
        # Whose script has come to its end is gone too: why it did says more.
        found = judge_passes(self.rank, own, self._passes, places) or self._judge_labels()
        found = found or judge_places(self.rank, own, self._totals, places) or judge_doors(doors, places, own)
        if found is None and waited_s > _HEARD_S:
            found = judge_silence(self._silent_s(), _LATE_S, places) or judge_stuck(own, places)
        return found

    def tell(self) -> None:
        """Says where this worker is; the chief, who only answers, for a while."""
        if self.rank > 0:
            self.beat()
            return
        until_s = self._clock() + _TELLING_S
        while self._clock() < until_s:
            self.beat()
            time.sleep(0.1)

    def _run(self) -> None:
        while not self._heartbeats.wait(self._is_over, _BEAT_S):
            self.beat()
            own, places = self._place, self._places()
            is_judged = bool(own.kind) or self._is_loop
            if self.verdict is None and is_judged:
                found = self._judge_silence(places) or judge_passes(self.rank, own, self._passes, places)
                found = found or self._judge_labels()
                if found is None and self.rank == 0:
                    found = judge_places(self.rank, own, self._totals, places)
                self.verdict = found
            if self.verdict is not None and is_judged:
                self._abort_once()

    def _judge_silence(self, places: dict[int, Place]) -> Verdict | None:
        silent_s = self._silent_s()
        silent = {rank: self.workers[rank] for rank, seconds in silent_s.items() if seconds > _SILENCE_S}
        answering = silent.keys() - knock(silent, _KNOCK_S)
        judged = {rank: s for rank, s in silent_s.items() if rank not in answering or s > _HOLDING_S}
        return judge_silence(judged, _SILENCE_S, places)

    def _judge_labels(self) -> Verdict | None:
        found = judge_labels(self._place, self._passes, self._labels_told())
        if found is None or not self._passes.may_be_augmented(found.place.data):
            return found
        if not self._has_warned:
            self._has_warned = True
            _log.warning("%s Nothing is wrong if only augmentation differs.", self._said(found))
        return None

    def _labels_told(self) -> dict[int, LabelsSeen]:
        with self._lock:
            return {rank: beat.labels for rank, beat in self._heartbeats.beats.items() if rank != self.rank}

    def _said(self, verdict: Verdict) -> str:
        said = describe_verdict(verdict, self.workers[verdict.rank])
        return f"All workers must read the same data.\nReceived: {said}"

    def _abort_once(self) -> None:
        if not self._is_aborted and self.verdict is not None:
            self._is_aborted = True
            self._abort(f"tfscale: worker {self.verdict.rank} holds up the job")

    def _places(self) -> dict[int, Place]:
        with self._lock:
            return {rank: beat.place for rank, beat in self._heartbeats.beats.items() if rank != self.rank}

    def _silent_s(self) -> dict[int, float]:
        return {rank: self._heartbeats.silent_s(rank) for rank in self._places()}


WATCH = Fact[PeerWatch](ReplicaGroup, "watch")
# Where a script runs functions by itself, before any call.
WATCH_OF_LOOP = Fact[PeerWatch](ReplicaGroup, "watch_of_loop")
_PASSES = Fact[PassesRead](ReplicaGroup, "passes over data")


def passes_read(strategy: tf.distribute.Strategy) -> PassesRead:
    """The passes over data of this worker, also those from before anybody watched."""
    return _PASSES.ensure(strategy, PassesRead())


def find_watch(strategy: tf.distribute.Strategy) -> PeerWatch | None:
    """The watch of a strategy; None before its first call or step, and where there is one worker."""
    return WATCH.of(strategy) or WATCH_OF_LOOP.of(strategy)


def start_watch(strategy: tf.distribute.Strategy) -> PeerWatch | None:
    """As `find_watch`, and begins it; to be called by every worker."""
    if strategy not in WATCH and local_replicas(strategy).on_several_workers:
        workers, rank = worker_addresses(strategy), worker_rank(strategy)
        heartbeats = Heartbeats(rank, len(workers), read_secret(os.environ, workers))
        introduce(heartbeats, strategy, workers, rank)
        WATCH.set(strategy, PeerWatch(rank, workers, heartbeats, passes_read(strategy))).begin()
    return WATCH.of(strategy)


def watch_loop(strategy: tf.distribute.Strategy) -> None:
    """Watches a job of several workers while a script runs steps by itself; one worker alone may call it."""
    watch = find_watch(strategy)
    if watch is None:
        workers, rank = worker_addresses(strategy), worker_rank(strategy)
        heartbeats = Heartbeats(rank, len(workers), read_secret(os.environ, workers))
        if not introduce_to_who_asks(heartbeats, len(WATCH_OF_LOOP.everywhere()), workers, rank):
            heartbeats.close()
            return
        watch = WATCH_OF_LOOP.set(strategy, PeerWatch(rank, workers, heartbeats, passes_read(strategy)))
        watch.begin()
    watch.begin_loop()
    watch.compare_first_labels()
