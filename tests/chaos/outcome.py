"""What has come of a job and its attempts, as the judge needs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.chaos.schedule import Attempt, Fault
from tests.processes import Ended


@dataclass
class Tried:
    """What has come of one start of a job.

    Args:
        attempt: What was to befall it.
    """

    attempt: Attempt
    ended: list[Ended] = field(default_factory=list)
    """How its workers ended, by rank; with a status of None where they had to be killed at the deadline."""
    victims: set[int] = field(default_factory=set)
    """The workers that were ended from outside: of these nothing is asked."""
    befell: list[Fault] = field(default_factory=list)
    """The faults that came; others were planned for after its end."""
    refusal: str | None = None
    """What a second run in the same directory was told; empty where it was not refused, None where there was none."""
    seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether every worker has come to the end of the run."""
        return bool(self.ended) and all(each.status == 0 and each.result is not None for each in self.ended)


@dataclass
class Job:
    """What has come of a job: its starts by their order, and what its directory had to be deleted for."""

    starts: list[Tried] = field(default_factory=list)
    begun_anew: list[str] = field(default_factory=list)

    @property
    def befell(self) -> list[Fault]:
        """All faults that came."""
        return [fault for tried in self.starts for fault in tried.befell]
