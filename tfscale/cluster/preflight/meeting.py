"""Are all workers of the job there, does each reach all others, and do they agree?

Every worker listens on its own port, where TensorFlow's server is going to, and connects to all others. The chief
hears from everybody what it is and whom it reaches. When all reach all and agree, it has everybody give its port free,
and only then says that TensorFlow may start: so no worker meets a TensorFlow that has begun, or a port that is taken.

The port is open to everybody, so a message counts only when it is signed with the secret of the job (`connection`); who
cannot sign has a connection for 5 s, or until others need its place.
"""

import contextlib
import errno
import logging
import selectors
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from tfscale.cluster.preflight.clock import SteadyClock
from tfscale.cluster.preflight.connection import Connection, ConnectionEndedError
from tfscale.cluster.preflight.facts import WORKERS, describe_workers, hash_workers, shape_facts
from tfscale.cluster.preflight.gathering import Gathering
from tfscale.cluster.preflight.ports import listen
from tfscale.cluster.preflight.probe import Probe
from tfscale.cluster.preflight.reasons import OTHER_JOB, STRANGER, Reason, describe_absence, other_rank, other_secret
from tfscale.cluster.preflight.strangers import Strangers
from tfscale.cluster.secret import SECRET, Secret, read_secret
from tfscale.cluster.shown import printable
from tfscale.cluster.spec import ClusterSpec
from tfscale.errors import ClusterError

_log = logging.getLogger(__name__)

_BACKLOG = 1024
# Each may need three looks at the sockets until it has signed: fewer than the places that there are for strangers.
_MAX_ACCEPTED = 16
_MAX_PROBES = 64
_MAX_STOP = 1800
# A worker that answers wrongly may be one of the attempt before, which is just ending.
_WRONG_S = 3.0
# The chief knows better who is missing; it may have no time left.
_LAST_WORD_S = 1.0
_FIRST_WORD_S = 10.0
_NEXT_WORD_S = 30.0


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
        self._job = hash_workers(spec.workers)
        self._facts = shape_facts({WORKERS: describe_workers(spec.workers), **facts})
        self._is_over = False
        self._gave_up_s: float | None = None
        self._next_word_s = _FIRST_WORD_S
        self._told: dict[str, str] | None = None
        port = int(spec.workers[spec.rank].rpartition(":")[2])
        whose = f"worker {spec.rank} ({spec.workers[spec.rank]})"
        self._listener: socket.socket | None = listen(port, whose, backlog=_BACKLOG)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._on_visitor)
        self._strangers = Strangers(self._selector, self._on_greeting, clock)
        self._gathering = Gathering(spec, self._facts, clock) if spec.is_chief else None
        greeting = {"rank": spec.rank, "token": self._token, "job": self._job}
        self._probes = {
            rank: Probe(
                address,
                self._selector,
                secret,
                {**greeting, "facts": self._facts} if rank == 0 else greeting,
                self._judge_for(rank),
                clock,
            )
            for rank, address in enumerate(spec.workers)
            if rank != spec.rank
        }
        if not spec.is_chief:
            self._probes[0].keeps = self._on_order
            self._probes[0].lost = self._on_chief_lost

    def run(self) -> None:
        """Runs until all is well.

        Raises:
            ClusterError: As `meet`.
        """
        while not self._is_over:
            self._tick_probes()
            self._strangers.tick()
            if self._gathering is not None:
                self._gathering.note_reach(0, self._absent())
                self._lead(self._gathering)
            else:
                self._report_to_chief()
            if self._is_over:
                return
            self._check_time()
            is_new = self._clock() - self._start_s < 2
            for key, _ in self._selector.select(0.02 if is_new else 0.1):
                key.data()

    def close(self) -> None:
        """Ends every connection, and gives the port free."""
        for probe in self._probes.values():
            probe.end()
        self._stop_listening()
        if self._gathering is not None:
            self._gathering.close()
        self._selector.close()

    def _tick_probes(self) -> None:
        if self._listener is None:
            return
        busy = 0
        for rank, probe in self._probes.items():
            if busy < _MAX_PROBES or probe.connection is not None:
                probe.tick()
            busy += probe.connection is not None
            # The chief's word about a wrong list of workers says more than an address that leads elsewhere.
            if probe.wrong_for_s() > _WRONG_S:
                self._stop(describe_absence(self._spec.rank, self._spec.workers, {rank: probe.reason}, self._timeout_s))

    def _judge_for(self, rank: int) -> Callable[[Mapping[str, Any]], Reason | None]:
        def judge(answer: Mapping[str, Any]) -> Reason | None:
            if "has_secret" in answer:
                workers, is_given = self._spec.workers, self._secret.is_given
                return other_secret(workers, is_given=is_given, has_secret=bool(answer["has_secret"]))
            if not isinstance(answer.get("token"), str):
                return STRANGER
            if answer.get("rank") != rank or answer["token"] == self._token:
                return other_rank(answer.get("rank"), answer["token"] == self._token)
            # The chief is told the whole list, and says what differs.
            return None if answer.get("job") == self._job or rank == 0 else OTHER_JOB

        return judge

    def _absent(self) -> dict[int, Reason]:
        return {rank: probe.reason for rank, probe in self._probes.items() if not probe.is_reached}

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
                f"Worker {self._spec.rank} must be able to open a connection to each of the others.\n"
                f"Received: {error.strerror}. Raise the limit of open files (`ulimit -n`), or start fewer workers."
            )

    def _on_greeting(self, stranger: Connection) -> None:
        try:
            for greeting in stranger.receive():
                stranger.send(rank=self._spec.rank, token=self._token, job=self._job)
                rank = greeting.get("rank")
                if isinstance(rank, int) and rank in self._probes and greeting.get("job") == self._job:
                    self._probes[rank].try_now()
                if self._gathering is not None and "facts" in greeting:
                    self._strangers.release(stranger)
                    self._gathering.admit(stranger, greeting, self._selector)
                    return
        except ConnectionEndedError:
            self._strangers.dismiss(stranger)

    def _stop_listening(self) -> None:
        self._strangers.dismiss_all()
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    # What the chief does.

    def _lead(self, gathering: Gathering) -> None:
        trouble = gathering.trouble()
        if trouble:
            self._stop(trouble)
        if gathering.late:
            self._stop(self._describe_absent())
        if gathering.is_complete and self._listener is not None:
            self._stop_listening()
            gathering.ask_to_close()
        if gathering.is_closed:
            gathering.send_all(start=True)
            self._is_over = True

    # What the others do.

    def _report_to_chief(self) -> None:
        chief = self._probes[0]
        if not chief.is_reached or chief.connection is None or self._listener is None:
            return
        absent = {str(rank): reason.text for rank, reason in self._absent().items()}
        if absent.keys() != (self._told or {"": ""}).keys():
            self._told = absent
            # A few are enough for a message.
            self._tell_chief(absent=dict(list(absent.items())[:5]))

    def _on_order(self, message: Mapping[str, Any]) -> None:
        if isinstance(message.get("stop"), str):
            raise ClusterError(printable(message["stop"], _MAX_STOP))
        if message.get("close"):
            self._stop_listening()
            self._tell_chief(closed=True)
        elif message.get("start"):
            self._is_over = True

    def _on_chief_lost(self) -> None:
        self._told = None
        if self._listener is None:
            raise ClusterError(
                f"All workers must stay until training starts.\n"
                f"Received: worker 0 ({self._spec.workers[0]}) has left. Its own output says why."
            )

    def _tell_chief(self, **message: Any) -> None:
        connection = self._probes[0].connection
        if connection is not None and self._probes[0].is_reached:
            # Where the connection has ended, the next look at it says so.
            with contextlib.suppress(ConnectionEndedError):
                connection.send(**message)

    # What happens when nothing happens.

    def _check_time(self) -> None:
        waited_s = self._clock() - self._start_s
        if waited_s > self._next_word_s and self._absent():
            self._next_word_s += _NEXT_WORD_S
            absent = "; ".join(
                f"worker {rank} ({self._spec.workers[rank]}): {reason.text}"
                for rank, reason in list(self._absent().items())[:5]
            )
            _log.warning("waiting for other workers since %d s: %s", waited_s, absent)
        if waited_s <= self._timeout_s:
            return
        chief_knows = not self._spec.is_chief and self._probes[0].is_reached
        if chief_knows and self._gave_up_s is None:
            self._gave_up_s = waited_s
            self._tell_chief(late=True)
        if not chief_knows or waited_s > (self._gave_up_s or 0.0) + _LAST_WORD_S:
            self._stop(self._describe_absent())

    def _describe_absent(self) -> str:
        absent = self._absent()
        if self._gathering is not None:
            absent = {rank: reason for rank, reason in absent.items() if rank not in self._gathering.members} or absent
            unreached = self._gathering.describe_unreached()
            if not absent and unreached:
                return unreached
        if not absent:
            return (
                f"Worker 0 ({self._spec.workers[0]}) must say within {self._timeout_s:g} s that all are there.\n"
                f"Received: nothing, though this worker reaches all others. Read its output."
            )
        return describe_absence(self._spec.rank, self._spec.workers, absent, self._timeout_s)

    def _stop(self, message: str) -> None:
        message = printable(message, _MAX_STOP)
        if self._gathering is not None:
            self._gathering.send_all(stop=message)
        else:
            self._tell_chief(stop=message)
        raise ClusterError(message)
