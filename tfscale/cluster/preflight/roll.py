"""Who has come to the chief, and does he agree with it?"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from tfscale.cluster.host_list import MAX_WORKERS
from tfscale.cluster.preflight.facts import (
    INFORM_ONLY,
    WORKERS,
    find_disagreements,
    gpus_of,
    read_facts,
)
from tfscale.cluster.spec import ClusterSpec

_log = logging.getLogger(__name__)

_SHOWN = 5


class Roll:
    """All workers that have told the chief what they are.

    Args:
        spec: The job; this worker is its chief.
        facts: The chief's.
    """

    def __init__(self, spec: ClusterSpec, facts: Mapping[str, str]):
        self._spec = spec
        self._facts = facts
        self._disagreements: dict[int, list[tuple[str, str, str]]] = {}
        self._owners = dict.fromkeys(gpus_of(facts), 0)
        self._shared = ""
        self._has_informed = False
        self.tokens: dict[int, str] = {}
        """Of each worker that has come, that of its process."""

    @property
    def are_all_there(self) -> bool:
        """Whether each has come."""
        return len(self.tokens) == self._spec.num_workers - 1

    @property
    def missing(self) -> list[int]:
        """Who has not come."""
        return [rank for rank in range(1, self._spec.num_workers) if rank not in self.tokens]

    @property
    def disagrees(self) -> bool:
        """Whether there is a worker that differs."""
        return bool(self._disagreements or self._shared)

    @property
    def disagreement(self) -> str:
        """In what they differ; nothing where all agree."""
        if not self._disagreements:
            return self._shared
        workers = self._spec.workers
        lines = [
            f"{name}: {other} on worker {rank}{self._address(rank)}, {own} on worker 0 ({workers[0]})"
            for rank, differing in sorted(self._disagreements.items())
            for name, other, own in differing
        ]
        more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        return (
            f"All workers must agree before training starts.\nReceived: {'; '.join(lines[:_SHOWN])}{more}. "
            "Start every worker with the same command, settings and installed versions."
        )

    def note(self, greeting: Mapping[str, Any]) -> int | None:
        """Notes a worker that says who it is, and returns its rank; None, without a note, where that makes no sense.

        A rank that this job does not have is that of a worker with another list: it disagrees.
        """
        rank, facts, token = greeting.get("rank"), read_facts(greeting.get("facts")), greeting.get("token")
        if type(rank) is not int or facts is None or not isinstance(token, str):
            return None
        found = find_disagreements(self._facts, facts)
        if not 0 <= rank < self._spec.num_workers:
            if not 0 <= rank < MAX_WORKERS or not any(name == WORKERS for name, _, _ in found):
                return None
            self._disagreements[rank] = found
            return rank
        if rank == 0:
            return rank
        differing = [each for each in found if each[0] not in INFORM_ONLY]
        if found and not differing:
            self._inform(rank, found)
        if differing:
            self._disagreements[rank] = differing
        self._note_gpus(rank, facts)
        self.tokens[rank] = token
        return rank

    def strike(self, rank: int, token: str) -> None:
        """Notes that a process has left; another one of that rank may have come meanwhile."""
        if self.tokens.get(rank) == token:
            del self.tokens[rank]

    def _note_gpus(self, rank: int, facts: Mapping[str, str]) -> None:
        """A worker that comes again has those that it had."""
        owners = {gpu: self._owners.setdefault(gpu, rank) for gpu in gpus_of(facts)}
        shared = [gpu for gpu, owner in owners.items() if owner != rank]
        if shared and not self._shared:
            owner = owners[shared[0]]
            self._shared = (
                "Every GPU must be of one worker: NCCL joins each GPU once.\n"
                f"Received: {', '.join(shared[:_SHOWN])}, seen by worker {owner}{self._address(owner)} and by worker "
                f"{rank}{self._address(rank)}. Give each worker GPUs of its own by CUDA_VISIBLE_DEVICES, or start the "
                "workers by `tfscale launch`, which does it."
            )

    def _inform(self, rank: int, found: Sequence[tuple[str, str, str]]) -> None:
        """Says once what differs and may."""
        if not self._has_informed:
            self._has_informed = True
            told = ", ".join(f"{name} ({other}, here {own})" for name, other, own in found)
            _log.warning("worker %d%s, perhaps among others, has other %s", rank, self._address(rank), told)

    def _address(self, rank: int) -> str:
        return f" ({self._spec.workers[rank]})" if 0 <= rank < self._spec.num_workers else ""
