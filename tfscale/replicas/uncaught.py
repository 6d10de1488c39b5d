"""What is shown of an error that ends a loop of the user's own, in which tfscale is not asked, on several workers?

TensorFlow's sixty lines about the graph of a step do not say which worker is gone, and the others are not told by it.
In a notebook an error ends a cell, not this worker: there it is said what happened, and nobody is told of it.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from typing import Any

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.replicas.failures import explain_caught, explain_uncaught
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.peers import watch_loop
from tfscale.replicas.replica_batch import local_replicas

_FRAMEWORKS = ("tensorflow", "keras", "tfscale")
# The logical replicas of a job whose run is to be theirs.
LOGICAL_RUN = Fact[int](ReplicaGroup, "logical_replicas")
# Whether a script runs steps on the replicas itself.
RUNS_LOOPS = Fact[bool](ReplicaGroup, "runs_loops")


# What is made here runs later, outside of any graph.
@tf.autograph.experimental.do_not_convert
def begin_loop(strategy: tf.distribute.Strategy, function: Any = None) -> None:
    """Notes that a script runs steps on the replicas itself. One worker alone may.

    Args:
        strategy: Of the job.
        function: That it gave to `strategy.run`; of tfscale's own there are many, outside of loops.
    """
    if strategy in LOGICAL_RUN and function is not None and not is_of_tfscale(function):
        raise ModelError(
            "With `logical_replicas` a model trains by `fit` or `train_on_batch`: a loop by hand knows none of "
            "them.\n"
            f"Received: logical_replicas={LOGICAL_RUN[strategy]} and a function that is given to `strategy.run`. Leave "
            "`logical_replicas` out, or put what the function does into `compute_loss`."
        )
    if local_replicas(strategy).on_several_workers and strategy not in RUNS_LOOPS and not is_of_tfscale(function):
        RUNS_LOOPS.set(strategy, True)
        _explain_what_is_uncaught(strategy)
        _explain_what_ends_a_cell(strategy)
        watch_loop(strategy)


def is_of_tfscale(function: Any) -> bool:
    """Whether a function is of the library, of which there are many outside of loops."""
    while isinstance(function, functools.partial):
        function = function.func
    module = getattr(function, "__module__", None) or ""
    return module.startswith("tfscale.") and module != "tfscale.loops"


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


def _explain_what_ends_a_cell(strategy: tf.distribute.Strategy) -> None:
    """IPython does not ask `sys.excepthook`. What the user has put there himself stays."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    if shell is None or shell.custom_exceptions:
        return
    known = weakref.ref(strategy)

    def show(
        shell: Any, kind: type[BaseException], error: Exception, trace: types.TracebackType | None, **given: Any
    ) -> None:
        own = known()
        said = error if own is None else explain_caught(own, error)
        if said is not error:
            kind, error, trace = type(said), said, _frames_of_the_user(trace)
        shell.showtraceback((kind, error, trace), **given)

    shell.set_custom_exc((tf.errors.OpError,), show)


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
