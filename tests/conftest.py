"""Every test leaves the process as it found it."""

import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.processes import SET_BY_IMPORTS, children

_SET_BY_PYTEST = {"PYTEST_CURRENT_TEST"}

# A thread or process that was told to stop may need a moment.
_GRACE_S = 2.0


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fails a test that leaves an environment variable, a thread or a child process behind."""
    before = {"environment": _environment(), "threads": _threads(), "children": children()}
    yield
    assert _environment() == before["environment"], "an environment variable was left changed"
    assert not _left(_threads, before["threads"]), "a thread was left running"
    assert not _left(children, before["children"]), "a child process was left running"


def _environment() -> dict[str, str]:
    ignored = SET_BY_IMPORTS | _SET_BY_PYTEST
    return {name: value for name, value in os.environ.items() if name not in ignored}


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _left(find: Callable[[], set], before: set) -> set:
    deadline_s = time.monotonic() + _GRACE_S
    while (left := find() - before) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return left
