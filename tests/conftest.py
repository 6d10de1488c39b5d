"""Every test leaves the process as it found it."""

import os
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

# What importing TensorFlow, h5py and scikit-learn sets, once and for the whole process.
_SET_BY_IMPORTS = {
    "ENABLE_RUNTIME_UPTIME_TELEMETRY",
    "HDF5_PLUGIN_PATH",
    "KMP_DUPLICATE_LIB_OK",
    "KMP_INIT_AT_FORK",
    "TF2_BEHAVIOR",
    "TPU_ML_PLATFORM",
    "TPU_ML_PLATFORM_VERSION",
}
_SET_BY_PYTEST = {"PYTEST_CURRENT_TEST"}

# A thread or process that was told to stop may need a moment.
_GRACE_S = 2.0


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fails a test that leaves an environment variable, a thread or a child process behind."""
    before = {"environment": _environment(), "threads": _threads(), "children": _children()}
    yield
    assert _environment() == before["environment"], "an environment variable was left changed"
    assert not _left(_threads, before["threads"]), "a thread was left running"
    assert not _left(_children, before["children"]), "a child process was left running"


def _environment() -> dict[str, str]:
    ignored = _SET_BY_IMPORTS | _SET_BY_PYTEST
    return {name: value for name, value in os.environ.items() if name not in ignored}


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _left(find: Callable[[], set], before: set) -> set:
    deadline_s = time.monotonic() + _GRACE_S
    while (left := find() - before) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return left
