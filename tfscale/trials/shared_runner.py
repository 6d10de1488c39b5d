"""How are trials run by several hosts, none of them twice?"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from tfscale.parity.processes import Ending
from tfscale.trials.pool import Pool
from tfscale.trials.sharing import LOST, Claims

# How often a host that has nothing to run looks what the others have.
_LOOK_S = 0.5

Request = tuple[str, Callable[[], dict[str, Any]]]
"""A name, and what makes the request when it is about to begin."""


class Runner(Protocol):
    """Runs requests side by side."""

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[str, Ending, str]]:
        """Yields the name of each, how it ended, and the end of what it wrote; as `Pool.run`."""
        ...


class SharedRunner:
    """Runs what no other host has; yields what the others have run, too, once it is there.

    Args:
        pool: Of this host.
        claims: Of all hosts.
        is_done: Whether a trial of this name has ended, wherever.
        tell: Called when more of them have.
    """

    def __init__(
        self, pool: Pool, claims: Claims, is_done: Callable[[str], bool], tell: Callable[[], None] = lambda: None
    ):
        self._pool, self._claims, self._is_done, self._tell = pool, claims, is_done, tell

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[str, Ending, str]]:
        """As `Runner`."""
        waiting = dict(requests)
        while waiting:
            for name in self._claims.release_lost(waiting):
                del waiting[name]
                yield name, Ending(False, (1,)), LOST
            taken = [(name, waiting.pop(name)) for name in self._claims.take([*waiting], self._pool.at_a_time)]
            if taken:
                with contextlib.closing(self._pool.run(taken)) as running:  # type: ignore[type-var]
                    yield from running
            others = [name for name in waiting if self._is_done(name)]
            for name in others:
                del waiting[name]
                yield name, Ending(False, (0,)), ""
            if taken or others:
                self._tell()
            elif waiting:
                time.sleep(_LOOK_S)
