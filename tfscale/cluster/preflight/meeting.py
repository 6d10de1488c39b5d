"""Are all workers of the job there, does each reach those that it has to, and do they agree?

Every worker listens on its own port, where TensorFlow's server is going to, and connects to its partners: in a job of
up to 16 workers all others, in a larger one those to which collectives lead (`layout`), log2(N) + 4 of N at most. It
tells the chief what it is; whom it does not reach, and whether all below it are ready, it tells the worker above it in
a tree of 32 branches: the chief of 1,000 hears from 32. When all are ready and agree, it has everybody give its port
free, and only then says that TensorFlow may start: so no worker meets a TensorFlow that has begun, or a port that is
taken.

The port is open to everybody, so a message counts only when it is signed with the secret of the job (`connection`); who
cannot sign has a connection for 5 s, or until others need its place.
"""

import contextlib
import errno
import logging
import math
import selectors
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from tfscale.cluster.preflight.clock import SteadyClock
from tfscale.cluster.preflight.connection import Connection, ConnectionEndedError
from tfscale.cluster.preflight.facts import WORKERS, describe_workers, shape_facts
from tfscale.cluster.preflight.gathering import Gathering
from tfscale.cluster.preflight.layout import find_parent
from tfscale.cluster.preflight.ports import listen
from tfscale.cluster.preflight.probe import Probe
from tfscale.cluster.preflight.reach import Reach
from tfscale.cluster.preflight.reasons import NOT_TRIED, Reason, describe_absence, describe_unreached
from tfscale.cluster.preflight.reporter import Reporter
from tfscale.cluster.preflight.roll import Roll
from tfscale.cluster.preflight.strangers import Strangers
from tfscale.cluster.secret import SECRET, Secret, read_secret
from tfscale.cluster.shown import printable
from tfscale.cluster.spec import ClusterSpec
from tfscale.errors import ClusterError

_log = logging.getLogger(__name__)

_BACKLOG = 1024
# Each may need three looks at the sockets until it has signed: fewer than the places that there are for strangers.
_MAX_ACCEPTED = 16
_MAX_STOP = 1800
# The chief knows better who is missing; it may have no time left.
_LAST_WORD_S = 1.0
_FIRST_WORD_S = 10.0
_NEXT_WORD_S = 30.0
# When the chief begins to ask those for itself that have not come, if nobody has come for so long.
_CALL_S = 5.0
_CALL_AGAIN_S = 2.0
# Between two looks at the clock.
_LONGEST_LOOK_S = 0.1
_IDLE_S = 1.0


def meet(
    spec: ClusterSpec,
    facts: Mapping[str, str],
    *,
    timeout_s: float,
    secret: Secret | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Returns when all workers are there and agree; to be called by each of them, before TensorFlow's server starts.

    Args:
        spec: The job. A job of one worker has nobody to meet.
        facts: What must be equal on all workers, by name.
        timeout_s: Seconds to wait for the others, who may start later.
        secret: What all workers of the job know; by default that which follows from the list of workers.
        clock: Seconds, from anywhere.

    Raises:
        ClusterError: On every worker: one is missing, cannot be reached, is another than it should be, has another
            secret, or differs in a fact; or this worker's port is in use. The message names it.

    Example:
        >>> from tfscale import ClusterSpec
        >>> from tfscale.cluster.preflight import meet
        >>> meet(ClusterSpec(workers=("localhost:2222",), rank=0), {}, timeout_s=10)
    """
    if spec.num_workers == 1:
        return
    secret = secret or read_secret({}, spec.workers)
    if not secret.is_given and spec.is_chief:
        _log.warning(
            "The workers meet without a secret: who comes to their ports by accident is kept out, who means to join is "
            "not. Set %s to the same value for all of them, or start them by `tfscale launch`.",
            SECRET,
        )
    with contextlib.closing(Meeting(spec, facts, timeout_s, secret, SteadyClock(clock))) as meeting:
        meeting.run()


class Meeting:
    """One worker's part in it: one thread, one selector, nothing that waits for one worker alone.

    Args:
        spec: As `meet`.
        facts: Likewise.
        timeout_s: Likewise.
        secret: Likewise.
        clock: Seconds, from anywhere; never back.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        facts: Mapping[str, str],
        timeout_s: float,
        secret: Secret,
        clock: Callable[[], float],
    ):
        self._spec = spec
        self._timeout_s = timeout_s
        self._secret = secret
        self._clock = clock
        self._start_s = clock()
        self._token = uuid.uuid4().hex
        self._facts = shape_facts({WORKERS: describe_workers(spec.workers), **facts})
        self.is_over = False
        """Whether TensorFlow may start."""
        self._gave_up_s: float | None = None
        self._next_word_s = _FIRST_WORD_S
        self._num_came = 0
        self._next_call_s = _CALL_S
        port = int(spec.workers[spec.rank].rpartition(":")[2])
        whose = f"worker {spec.rank} ({spec.workers[spec.rank]})"
        self._listener: socket.socket | None = listen(port, whose, backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.selector = selectors.DefaultSelector()
        """All that this worker has open is in it."""
        self.selector.register(self._listener, selectors.EVENT_READ, self._on_visitor)
        self._strangers = Strangers(self.selector, self._on_greeting, clock, spec.num_workers)
        self._roll = Roll(spec, self._facts) if spec.is_chief else None
        self._gathering = Gathering(spec, clock, self._on_left)
        self._reach = Reach(spec, self._token, self._facts, self.selector, secret, clock)
        self._reporter = None if spec.is_chief else self._report_to(self._reach.partners[find_parent(spec.rank)])

    def run(self) -> None:
        """Runs until all is well.

        Raises:
            ClusterError: As `meet`.
        """
        while not self.is_over:
            self.look(self.pause_s())

    def look(self, wait_s: float) -> None:
        """Does what there is to do.

        Args:
            wait_s: For how long to wait until somebody is heard of.

        Raises:
            ClusterError: As `meet`.
        """
        for key, _ in self.selector.select(wait_s):
            key.data()
            if self.is_over:
                return
        self._seek()
        self._strangers.tick()
        if self._roll is not None:
            self._lead(self._roll)
        elif self._reporter is not None:
            self._reporter.tick(self._reach.absent, is_listening=self._listener is not None)
        if not self.is_over:
            self._check_time()

    def close(self) -> None:
        """Ends every connection, and gives the port free."""
        self._reach.end()
        self._stop_listening()
        self._gathering.close()
        self.selector.close()

    def pause_s(self) -> float:
        """For how long there is nothing to do unless somebody is heard of."""
        due_s = self._reach.due_s
        if due_s == math.inf and not self._gathering.has_trouble:
            return _IDLE_S
        return max(min(due_s - self._clock(), _LONGEST_LOOK_S), 0.0)

    def _seek(self) -> None:
        """Tries to reach those that are not reached yet."""
        wrong = self._reach.tick() if self._listener is not None else None
        if wrong is not None:
            self._stop(describe_absence(self._spec.rank, self._spec.workers, dict([wrong]), self._timeout_s))

    # What happens at this worker's own port.

    def _on_visitor(self) -> None:
        for _ in range(_MAX_ACCEPTED):
            if self._listener is None:
                return
            try:
                accepted, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._on_refused_visitor(error)
                return
            self._strangers.add(Connection(accepted, self._secret), str(address[0]))

    def _on_refused_visitor(self, error: OSError) -> None:
        """The system did not let this process take a visitor in: it had gone, or there is no more room."""
        if error.errno in (errno.EMFILE, errno.ENFILE) and not self._strangers.dismiss_one():
            self._stop(
                f"Worker {self._spec.rank} must be able to open a connection to each of its partners.\n"
                f"Received: {error.strerror}. Raise the limit of open files (`ulimit -n`), or start fewer workers."
            )

    def _on_greeting(self, stranger: Connection) -> None:
        try:
            for greeting in stranger.receive():
                stranger.send(rank=self._spec.rank, token=self._token, job=self._reach.job)
                rank = greeting.get("rank")
                if isinstance(rank, int) and greeting.get("job") == self._reach.job:
                    self._reach.try_now(rank)
                if self._takes_in(stranger, greeting):
                    return
        except ConnectionEndedError:
            self._strangers.dismiss(stranger)

    def _takes_in(self, stranger: Connection, greeting: Mapping[str, Any]) -> bool:
        """Whether a caller is a stranger no more: it reports here, or the chief will have something to say to it."""
        rank = greeting.get("rank")
        if self._roll is None:
            if not greeting.get("reports") or greeting.get("job") != self._reach.job or type(rank) is not int:
                return False
        elif "facts" not in greeting:
            return False
        else:
            rank = self._roll.note(greeting)
            if rank is None:
                self._strangers.dismiss(stranger)
                return True
            if self._roll.disagrees:
                self._gathering.complain("The workers do not agree.")
            if not 0 <= rank < self._spec.num_workers:
                self._strangers.release(stranger)
                self._gathering.tell_later(stranger)
                return True
        if rank not in self._gathering.children and rank != self._spec.rank:
            return False
        self._strangers.release(stranger)
        self._gathering.admit(rank, str(greeting.get("token")), stranger, self.selector)
        return True

    def _stop_listening(self) -> None:
        self._strangers.dismiss_all()
        if self._listener is not None:
            self.selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    # What the chief does.

    def _lead(self, roll: Roll) -> None:
        gathering = self._gathering
        self._call_missing(roll)
        trouble = gathering.trouble(are_all_there=roll.are_all_there)
        if trouble:
            self._stop(roll.disagreement or trouble)
        if gathering.late:
            self._stop(self._describe_absent())
        if self._listener is not None and not roll.disagrees and gathering.is_ready and not self._reach.absent:
            self._stop_listening()
            gathering.ask_to_close()
        if gathering.is_closed:
            gathering.send_all(start=True)
            self.is_over = True

    def _call_missing(self, roll: Roll) -> None:
        """Asks those for itself that have not come, when nobody comes any more."""
        waited_s = self._clock() - self._start_s
        if waited_s < self._next_call_s or self._listener is None:
            return
        if len(roll.tokens) == self._num_came:
            self._reach.call(roll.missing)
        self._num_came = len(roll.tokens)
        self._next_call_s = waited_s + _CALL_AGAIN_S

    # What the others do.

    def _report_to(self, parent: Probe) -> Reporter:
        parent.keeps = self._on_order
        parent.lost = self._on_parent_lost
        return Reporter(self._spec.rank, parent, self._gathering, self._clock)

    def _on_order(self, message: Mapping[str, Any]) -> None:
        if isinstance(message.get("stop"), str):
            told = printable(message["stop"], _MAX_STOP)
            self._gathering.send_all(stop=told)
            raise ClusterError(told)
        if message.get("close"):
            self._stop_listening()
            self._gathering.ask_to_close()
        elif message.get("start"):
            self._gathering.send_all(start=True)
            self.is_over = True

    def _on_parent_lost(self) -> None:
        parent = find_parent(self._spec.rank)
        self._reach.seek_again(parent)
        if self._reporter is not None:
            self._reporter.begin_again()
        if self._listener is None:
            self._stop(
                f"All workers must stay until training starts.\n"
                f"Received: worker {parent} ({self._spec.workers[parent]}) has left. Its own output says why."
            )

    def _on_left(self, rank: int, token: str) -> None:
        """Somebody below has ended its connection."""
        if self._roll is not None:
            self._roll.strike(rank, token)
        elif self._reporter is not None:
            self._reporter.tell(left=[rank, token])

    # What happens when nothing happens.

    def _check_time(self) -> None:
        waited_s = self._clock() - self._start_s
        if waited_s > self._next_word_s and self._missing():
            self._next_word_s += _NEXT_WORD_S
            absent = "; ".join(
                f"worker {rank} ({self._spec.workers[rank]}): {reason.text}"
                for rank, reason in list(self._missing().items())[:5]
            )
            _log.warning("waiting for other workers since %d s: %s", waited_s, absent)
        if waited_s <= self._timeout_s:
            return
        chief_knows = self._reporter is not None and self._reporter.is_heard
        if chief_knows and self._gave_up_s is None:
            self._gave_up_s = waited_s
            self._gathering.late = True
        if not chief_knows or waited_s > (self._gave_up_s or 0.0) + _LAST_WORD_S:
            self._stop(self._describe_absent())

    def _missing(self) -> dict[int, Reason]:
        """Who is not there, as far as this worker can tell, and why: the chief has been told by each that is."""
        if self._roll is None:
            return self._reach.absent
        told = {miss.other: Reason(miss.text, NOT_TRIED.way_out) for miss in self._gathering.misses}
        missing = {rank: self._reach.reason(rank) or told.get(rank, NOT_TRIED) for rank in self._roll.missing}
        return missing or self._reach.absent

    def _describe_absent(self) -> str:
        workers, missing = self._spec.workers, self._missing()
        if self._roll is not None and self._roll.are_all_there and not self._reach.absent:
            unreached = describe_unreached(workers, self._gathering.misses)
            if unreached:
                return unreached
        if missing:
            there = self._reach.partners if self._roll is None else self._roll.tokens
            return describe_absence(self._spec.rank, workers, missing, self._timeout_s, sorted(there))
        return (
            f"Worker 0 ({workers[0]}) must say within {self._timeout_s:g} s that all are there.\n"
            f"Received: nothing, though this worker reaches all others that it has to. Read its output."
        )

    def _stop(self, message: str) -> None:
        message = printable(message, _MAX_STOP)
        self._gathering.send_all(stop=message)
        if self._reporter is not None:
            self._reporter.tell(stop=message)
        raise ClusterError(message)
