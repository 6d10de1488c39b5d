"""Which calls of a function are looked at before they do anything?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tfscale.training.step.due import LAST_LOOK, is_due


class Look(Protocol):
    """What looks at the batches of some calls before anything is done with them."""

    def __call__(self, batch: Any) -> None:
        """Looks at the first batch."""

    def again(self, batch: Any, *, is_next: bool) -> bool:
        """Looks at a later one; returns whether the step is to be traced anew.

        Args:
            batch: As for the first.
            is_next: Whether nothing was run that was not looked at.
        """


class OneAfterTheOther:
    """Looks in several ways, each once those before it have found nothing.

    Args:
        looks: In this order.
    """

    def __init__(self, looks: Sequence[Look]):
        self._looks = tuple(looks)

    def __call__(self, batch: Any) -> None:
        """Looks at the first batch."""
        for look in self._looks:
            look(batch)

    def again(self, batch: Any, *, is_next: bool) -> bool:
        """Looks at a later one; returns whether the step is to be traced anew."""
        return any(look.again(batch, is_next=is_next) for look in self._looks)


class Looks:
    """When a look is due: in the first call, and in those of the powers of two after it.

    Args:
        look: What looks, or None.
        at_each: Whether each call may do something else, as one that runs eagerly may: Python decides what it does.
    """

    def __init__(self, look: Look | None, *, at_each: bool = False):
        self._look = look
        self._at_each = at_each
        self._calls = 0

    def are_due(self) -> bool:
        """Whether the call that begins now is to be looked at."""
        if self._look is None:
            return False
        self._calls += 1
        if self._at_each:
            return True
        if self._calls > LAST_LOOK:
            self._look = None
            return False
        return is_due(self._calls)

    def __call__(self, batch: Any, *, is_lone: bool = True) -> bool:
        """Looks; returns whether the step is to be traced anew. A lone step is all of its call."""
        if self._look is None:
            return False
        try:
            if self._calls > 1:
                return self._look.again(batch, is_next=is_lone and (self._at_each or self._calls == 2))
            self._look(batch)
        except Exception:
            # Nothing was run: whoever calls again, as in a notebook, hears of it again.
            self._calls -= 1
            raise
        return False
