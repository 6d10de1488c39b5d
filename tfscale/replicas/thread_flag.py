"""What holds for one thread, as long as a `with` lasts? Every replica is traced by a thread of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class ThreadFlag(threading.local):
    """False, but where this thread has raised it."""

    is_raised = False

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Raises it meanwhile; what was before comes back."""
        outer, self.is_raised = self.is_raised, True
        try:
            yield
        finally:
            self.is_raised = outer
