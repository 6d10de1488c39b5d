"""Saves that are killed, or find no room. Every function runs in a process of its own."""

import itertools
import logging
import os
import random
import resource
import signal
import tempfile
import threading
import time

import numpy as np

from tfscale.recovery.files import StateFiles
from tfscale.recovery.folder import Saved


def save_until_killed(directory: str) -> None:
    """Saves states of a few MB, one after the other, and is killed at any moment of them."""
    files = StateFiles(directory, keep=2)
    newest = files.read_newest()
    number = newest.facts["number"] if newest else 0
    for count in itertools.count():
        number += 1
        files.write(Saved({"number": number}, [np.full((500_000,), number, np.float32) for _ in range(4)]))
        if count == 0:
            files.wait()
            delay_s = random.SystemRandom().uniform(0, 0.2)
            threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()


def save_without_room(directory: str) -> dict[str, object]:
    """Saves a small state, a large one where the system refuses large files, and a small one again."""
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(f"{record.levelname} {record.getMessage()}")
    logging.getLogger("tfscale").addHandler(handler)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    files = StateFiles(directory, keep=2)
    found = []
    for number, size in enumerate([1_000, 1_000_000, 1_000], start=1):
        files.write(Saved({"number": number}, [np.full((size,), number, np.float32)]))
        files.wait()
        found.append((files.failure is None, StateFiles(directory, keep=2).read_newest().facts["number"]))
    return {"found": found, "records": records, "files": sorted(os.listdir(directory))}


def never_waits() -> float:
    """How long `write` itself takes for a state whose writing takes a while."""
    with tempfile.TemporaryDirectory() as directory:
        files = StateFiles(directory, keep=1)
        start_s = time.perf_counter()
        files.write(Saved({}, [np.zeros((20_000_000,), np.float32)]))
        handed_over_s = time.perf_counter() - start_s
        files.wait()
        return handed_over_s / (time.perf_counter() - start_s)
