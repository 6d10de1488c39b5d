"""Which thread trains on the replicas of a strategy now?"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import tensorflow as tf

from tfscale.errors import DeviceError
from tfscale.replicas.owners import Fact, ReplicaGroup

_LOCK = threading.Lock()
# The call that runs, and its thread.
RUNNING = Fact[tuple[str, threading.Thread]](ReplicaGroup, "runs", lambda each: f"{each[0]} in {each[1].name}")


@contextlib.contextmanager
def one_at_a_time(strategy: tf.distribute.Strategy, name: str) -> Iterator[None]:
    """Lets one thread at a time call `fit` and the like; a callback of it may call them, too.

    The reductions of two threads meet each other's, in any order: TensorFlow fails now and then, or waits.

    Args:
        strategy: Of the model.
        name: Of the call.

    Raises:
        DeviceError: Another thread is in such a call.
    """
    if strategy.num_replicas_in_sync == 1:
        # Nothing that two threads could mix up.
        yield
        return
    thread = threading.current_thread()
    with _LOCK:
        running = RUNNING.of(strategy)
        # A thread that has ended has left its call, however it did.
        if running is not None and running[1] is not thread and running[1].is_alive():
            raise DeviceError(
                "One thread at a time may train, evaluate or predict on the replicas of a strategy.\n"
                f"Received: `{name}` in thread {thread.name!r}, while `{running[0]}` runs in thread "
                f"{running[1].name!r}. Call one after the other, or run each in a process of its own."
            )
        is_outermost = running is None or running[1] is not thread
        if is_outermost:
            RUNNING.set(strategy, (name, thread))
    try:
        yield
    finally:
        if is_outermost:
            with _LOCK:
                RUNNING.forget(strategy)
