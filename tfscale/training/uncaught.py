"""What is shown of an error that ends a loop of the user's own, in which tfscale is not asked, on several workers?

TensorFlow's sixty lines about the graph of a step do not say which worker is gone, and the others are not told by it.
"""

from __future__ import annotations

import sys
import types
import weakref
from typing import Any

import tensorflow as tf

from tfscale.training.failures import explain_uncaught
from tfscale.training.inputs import local_replicas
from tfscale.training.peers import start_watch

_FRAMEWORKS = ("tensorflow", "keras", "tfscale")
# Those whose loops are watched, and those of them whose watch is being started, which takes a step itself.
_LOOPS: weakref.WeakSet[Any] = weakref.WeakSet()
_STARTING: weakref.WeakSet[Any] = weakref.WeakSet()


def begin_loop(strategy: tf.distribute.Strategy) -> bool:
    """Notes that a script runs functions on the replicas itself; to be called by every worker.

    Returns:
        Whether it is the script that does; else it is what begins to watch the workers.
    """
    replicas = local_replicas(strategy)
    if replicas.here < replicas.total and strategy not in _LOOPS:
        _LOOPS.add(strategy)
        _explain_what_is_uncaught(strategy)
        _STARTING.add(strategy)
        try:
            with tf.init_scope():
                watch = start_watch(strategy)
        finally:
            _STARTING.discard(strategy)
        if watch is not None:
            watch.begin_loop()
    return strategy not in _STARTING


def _explain_what_is_uncaught(strategy: tf.distribute.Strategy) -> None:
    """Puts a function before the one that shows errors which nobody catches."""
    shown, known = sys.excepthook, weakref.ref(strategy)

    def show(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        own = known()
        said = error if own is None else explain_uncaught(own, error)
        if said is not error:
            kind, error, trace = type(said), said, _frames_of_the_user(trace)
        shown(kind, error, trace)

    sys.excepthook = show


def _frames_of_the_user(trace: types.TracebackType | None) -> types.TracebackType | None:
    entries: list[types.TracebackType] = []
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in _FRAMEWORKS:
            entries.append(trace)
        trace = trace.tb_next
    found: types.TracebackType | None = None
    for entry in reversed(entries):
        found = types.TracebackType(found, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return found
