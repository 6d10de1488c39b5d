"""At which step do all workers save, or end?"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfscale.recovery.interval import SaveClock, next_agreement
from tfscale.recovery.location import RemotePath
from tfscale.recovery.termination import Termination
from tfscale.recovery.votes import Vote, Workers

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """What a user asked for; see `callbacks.Recovery`."""

    directory: Path | RemotePath
    every_steps: int | None
    every_s: float | None
    keep: int
    mtbf_s: float
    restart: bool = False


class Decision:
    """Saves by steps are known to all. The time, and a signal, are known to one: then the workers vote.

    One worker has nobody to ask and decides at every step. Several ask each other about once a second, at steps that
    follow from the vote before.

    Args:
        settings: What the user asked for.
        workers: Of the job.
        termination: Whether this worker was asked to end.
        want_save: Whether others want one; asked on all workers with each vote, and alike.
    """

    def __init__(
        self,
        settings: Settings,
        workers: Workers,
        termination: Termination,
        want_save: Callable[[], bool] = lambda: False,
    ):
        self._every_steps = settings.every_steps
        self._workers = workers
        self._termination = termination
        self._want_save = want_save
        self._clock = SaveClock(settings.every_s, settings.mtbf_s, time.monotonic())
        self._saved_at = 0
        self._calls_to_vote = 1
        self._calls = 0
        self._voted_s = self._epoch_begun_s = time.monotonic()
        self._is_slow_told = False
        self.steps = 0
        """Steps of the run, those before a restart included."""
        self.is_due = False
        """Whether to save as soon as the state allows it."""
        self.save_s: float | None = None
        """How long the last save took, on the chief."""

    def start(self, steps: int) -> None:
        """Begins to count at `steps`."""
        self.steps = self._saved_at = steps

    def count(self, steps: int) -> None:
        """Counts steps that were made."""
        self.steps += steps
        every = self._every_steps
        if every is not None and self.steps // every > self._saved_at // every:
            self.is_due = True

    def saved(self, save_s: float | None) -> None:
        """Notes that the state was saved.

        Args:
            save_s: How long that took, as far as it is known.
        """
        self.is_due = False
        self.save_s = save_s
        every_s = self._clock.every_s
        if every_s is not None and save_s is not None and save_s > every_s:
            self.tell_slow(f"{save_s:.1f} s in the place of {every_s:g} s")
        self._saved_at = self.steps
        self._clock.saved(time.monotonic())

    def tell_slow(self, how: str) -> None:
        """Says once that saves take longer than the time between two of them."""
        if not self._is_slow_told and self._workers.is_chief:
            _log.warning("A save takes longer than the interval between two saves (%s): choose a longer one.", how)
        self._is_slow_told = True

    def begin_epoch(self) -> None:
        """Begins to time an epoch."""
        self._epoch_begun_s = time.monotonic()

    def vote_at_end(self, *, is_writing: bool, next_steps: int | None, starts_matter: bool) -> bool:
        """As `vote`, at the end of an epoch: saves also what will be due in the midst of the next one.

        Args:
            is_writing: As for `vote`.
            next_steps: Steps of the next epoch, where they are known.
            starts_matter: Whether the next epoch may have to be begun again.
        """
        if starts_matter and self._every_steps is not None:
            every = self._every_steps
            self.is_due |= next_steps is None or (self.steps + next_steps) // every > self._saved_at // every
        # The next epoch takes as long as this one, as far as anybody knows.
        ahead_s = time.monotonic() - self._epoch_begun_s if starts_matter else 0.0
        self._calls += 1
        return self._vote(is_writing, ahead_s)

    def vote(self, *, is_writing: bool) -> bool:
        """Returns whether all end here.

        Args:
            is_writing: Whether the last save is still under way: then the next one waits.
        """
        self._calls += 1
        if self._workers.are_several and self._calls < self._calls_to_vote:
            return False
        return self._vote(is_writing, 0.0)

    def _vote(self, is_writing: bool, ahead_s: float) -> bool:
        now_s = time.monotonic()
        is_due = (
            self._every_steps is None
            and not is_writing
            and self.steps > self._saved_at
            and self._clock.is_due(now_s + ahead_s, self.save_s)
        )
        own = Vote(self._termination.requested, is_due, next_agreement(self._calls, now_s - self._voted_s))
        agreed = self._workers.agree(own)
        self.is_due = self._want_save() or self.is_due or agreed.save
        self._calls_to_vote, self._calls = agreed.next_agreement, 0
        self._voted_s = time.monotonic()
        return agreed.stop
