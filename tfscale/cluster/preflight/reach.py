"""Whom does this worker reach, of those that it has to?"""

import math
import selectors
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from tfscale.cluster.preflight.facts import hash_workers
from tfscale.cluster.preflight.layout import MAX_ALL_PAIRS, find_parent, find_partners
from tfscale.cluster.preflight.probe import Probe
from tfscale.cluster.preflight.reasons import NOT_HEARD, OTHER_JOB, STRANGER, Reason, other_rank, other_secret
from tfscale.cluster.secret import Secret
from tfscale.cluster.spec import ClusterSpec

_MAX_PROBES = 64
# In a large job all begin at once: whoever has few calls open is answered sooner.
_FEW_PROBES = 4
# One that is busy with many others answers late, and what is begun anew costs it more.
_BUSY_S = 20.0
# A worker that answers wrongly may be one of the attempt before, which is just ending.
_WRONG_S = 3.0


class Reach:
    """The probes of one worker.

    Args:
        spec: The job, and the rank of this worker.
        token: Of this process.
        facts: What the chief is told.
        selector: Tells when a connection is ready; the data of its keys is the method to call.
        secret: The job's.
        clock: Seconds, from anywhere.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        token: str,
        facts: Mapping[str, str],
        selector: selectors.BaseSelector,
        secret: Secret,
        clock: Callable[[], float],
    ):
        self._spec = spec
        self._token = token
        self._facts = facts
        self._selector = selector
        self._secret = secret
        self._clock = clock
        self._is_large = spec.num_workers > MAX_ALL_PAIRS
        self._most_at_once = _FEW_PROBES if self._is_large else _MAX_PROBES
        self.job = hash_workers(spec.workers)
        """What tells the job from others."""
        self.partners: dict[int, Probe] = {}
        # In a large job the chief comes last, when others have taken their time: all call it.
        for rank in sorted(find_partners(spec.rank, spec.num_workers), reverse=self._is_large):
            self.partners[rank] = self._probe(rank)
        self._seeking = dict(self.partners)
        # The chief's, to those that have not come and that it does not have to reach: they say why.
        self._calls: dict[int, Probe] = {}

    @property
    def absent(self) -> dict[int, Reason]:
        """Which partners it does not reach, and why."""
        return {rank: probe.reason for rank, probe in sorted(self._seeking.items()) if not probe.is_reached}

    @property
    def due_s(self) -> float:
        """When, as the clock counts, there is something to do for `tick`."""
        return min((probe.due_s for probe in self._tried()), default=math.inf)

    def tick(self) -> tuple[int, Reason] | None:
        """Begins attempts that are due; returns a worker that has been the wrong one for long, and why."""
        busy = 0
        for rank in [rank for rank, probe in self._seeking.items() if probe.is_reached]:
            del self._seeking[rank]
        for rank, probe in (*self._seeking.items(), *self._calls.items()):
            was_trying = probe.connection is not None
            if busy < self._most_at_once or was_trying:
                probe.tick()
            busy += probe.connection is not None
            if was_trying and probe.connection is None:
                # Nobody answered for seconds: others have their turn first.
                tried = self._seeking if rank in self._seeking else self._calls
                tried[rank] = tried.pop(rank)
            # The chief's word about a wrong list of workers says more than an address that leads elsewhere.
            if probe.wrong_for_s() > _WRONG_S:
                return rank, probe.reason
        return None

    def try_now(self, rank: int) -> None:
        """Does not wait until the next attempt at a worker is due: it has been heard of."""
        if rank in self._seeking:
            self._seeking[rank].try_now()

    def seek_again(self, rank: int) -> None:
        """Notes that a partner is not reached any more."""
        self._seeking[rank] = self.partners[rank]

    def call(self, missing: Collection[int]) -> None:
        """Asks those for itself that are missing, and nobody else that is no partner."""
        # Nobody comes any more, so that nobody is kept waiting.
        self._most_at_once = _MAX_PROBES
        for rank in self._calls.keys() - set(missing):
            self._calls.pop(rank).end()
        for rank in missing:
            if rank not in self._calls and rank not in self.partners:
                self._calls[rank] = self._probe(rank)

    def reason(self, rank: int) -> Reason | None:
        """Why a worker has not come to this one; None where it was not asked."""
        probe = self.partners.get(rank) or self._calls.get(rank)
        return None if probe is None else NOT_HEARD if probe.is_reached else probe.reason

    def end(self) -> None:
        """Ends every connection."""
        for probe in (*self.partners.values(), *self._calls.values()):
            probe.end()

    def _tried(self) -> Iterator[Probe]:
        """The probes that have a connection, and as many more as may have one."""
        tried = [*self._seeking.values(), *self._calls.values()]
        busy = sum(probe.connection is not None for probe in tried)
        for probe in tried:
            if probe.connection is not None or busy < self._most_at_once:
                yield probe

    def _probe(self, rank: int) -> Probe:
        greeting: dict[str, Any] = {"rank": self._spec.rank, "token": self._token, "job": self.job}
        if rank == 0:
            greeting["facts"] = self._facts
        elif rank == find_parent(self._spec.rank):
            greeting["reports"] = True
        address = self._spec.workers[rank]
        probe = Probe(address, self._selector, self._secret, greeting, self._judge_for(rank), self._clock)
        if self._is_large:
            probe.patience_s = _BUSY_S
        return probe

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
            return None if answer.get("job") == self.job or rank == 0 else OTHER_JOB

        return judge
