"""What batch comes next in a pass that somebody else goes through?"""

from __future__ import annotations

from typing import Any


class PeekedBatches:
    """The batches of a pass, of which the next one may be looked at before it is used.

    Args:
        iterator: Of `tf.data`, or one that TF distributed.
    """

    def __init__(self, iterator: Any):
        self.iterator = iterator
        """What comes behind the batch that was looked at."""
        self._next: list[Any] = []

    def peek(self) -> Any:
        """Returns the next batch, which stays the next one; None at the end of the data."""
        if not self._next:
            # A pass that has ended stays ended: whoever asks for a step will hear of it.
            self._next = [next(self.iterator, None)]
        return self._next[0]

    def take(self) -> Any:
        """Returns the batch that was looked at, if one was: it is used now."""
        return self._next.pop() if self._next else None

    def skip(self, count: int) -> None:
        """Leaves out batches."""
        for _ in range(count):
            self.peek()
            self.take()
