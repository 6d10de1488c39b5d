"""How many steps does one call of the compiled step take, when tfscale is to choose?

Between two calls the host is busy: callbacks, the logs, the call itself. A call of k steps takes `T(k) = h + k s`,
where h is the host's part and s a step's, so the host's share is `h / T(k)`. k grows until that is small; but a
callback hears of a step when its call ends, so that a call must not take longer than about a second.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import BatchError
from tfscale.framework.fit import join_steps
from tfscale.replicas.agreement import least_of_workers
from tfscale.replicas.replica_batch import local_replicas

HOST_SHARE = 0.02
# Calls of half of what is promised: later ones may be slower than those that were timed.
_CALL_S, _LATEST_S = 0.5, 1.0
# The first call of a pass traces the function, or makes the data begin.
_NOT_TIMED = 1
_TIMED = 3
_GROWTH = 16


def check_steps_per_execution(value: Any) -> None:
    """Checks `steps_per_execution` of `DataParallel`.

    Raises:
        BatchError: When it is neither "auto" nor None.
    """
    if value not in (None, "auto"):
        raise BatchError(
            '`steps_per_execution` must be "auto", or None for what `compile` says.\n'
            f"Received: steps_per_execution={value!r}. Give a number to `model.compile`."
        )


def steps_for_host_share(host_s: float, step_s: float) -> int:
    """The fewest steps per call with which the host's share is at most `HOST_SHARE`, and calls are not long.

    Args:
        host_s: What a call takes besides its steps, in seconds.
        step_s: A step, in seconds.

    Returns:
        1 or more.

    Example:
        >>> from tfscale.training.call.steps_per_call import steps_for_host_share
        >>> steps_for_host_share(host_s=0.001, step_s=0.001)
        49
        >>> steps_for_host_share(host_s=0.001, step_s=0.2)
        1
        >>> steps_for_host_share(host_s=0.1, step_s=0.01)
        50
    """
    # h / (h + k s) <= share. Rounded, because the quotient of two times is never a whole number.
    wanted = math.ceil(round(host_s * (1 - HOST_SHARE) / (HOST_SHARE * step_s), 6))
    return max(1, min(wanted, int(_CALL_S / step_s)))


class StepsPerCall:
    """Chooses the steps of each call of one pass over the data, from how long the calls before took.

    Args:
        agree: Makes one number of those of all workers; called as often on each of them. Workers that took different
            numbers of steps would wait for each other.
        clock: Seconds.
    """

    def __init__(self, agree: Callable[[int], int] | None = None, clock: Callable[[], float] = time.perf_counter):
        self._agree = agree
        self._clock = clock
        self._wanted = 1
        self._num_calls = 0
        self._decide_at = _NOT_TIMED + _TIMED
        # Seconds of the last calls, by their number of steps.
        self._seconds: dict[int, list[float]] = {}
        self.count = 1
        """Steps of the call that comes next, or is under way."""

    def calls(self, steps: Iterator[tuple[int, int, Any]], num_steps: int | None) -> Iterator[tuple[int, int, Any]]:
        """Joins the steps of an epoch to calls.

        Args:
            steps: First step, last step (the same) and data iterator, for each step of the epoch; costs nothing to go
                through.
            num_steps: Steps of the epoch, None where only the data know.

        Yields:
            First step, last step and data iterator of each call.
        """
        for begin, end, data in steps:
            left = self._wanted if num_steps is None else min(self._wanted, num_steps - begin)
            self.count = 1
            while self.count < left:
                following = next(steps, None)
                if following is None:
                    break
                end = following[1]
                self.count += 1
            start_s = self._clock()
            yield begin, end, data
            self.observe(self.count, self._clock() - start_s)

    def observe(self, count: int, seconds: float) -> None:
        """Takes note of a call, and chooses how many steps the next one takes."""
        self._num_calls += 1
        if self._num_calls <= _NOT_TIMED:
            return
        timed = self._seconds.setdefault(count, [])
        timed.append(seconds)
        del timed[:-_TIMED]
        is_late = seconds > _LATEST_S and count > 1 and self._agree is None
        if self._num_calls >= self._decide_at or is_late:
            self._wanted = self._choose(count, seconds)
            # Workers have to ask each other, which takes as long as a small step: less and less often.
            self._decide_at = self._num_calls + (_TIMED if self._agree is None else max(_TIMED, self._num_calls // 2))

    def _choose(self, count: int, seconds: float) -> int:
        small, large = min(self._seconds), max(self._seconds)
        took_s = {size: statistics.median(self._seconds[size]) for size in (small, large)}
        if small == large:
            # One size tells nothing of the host's part: take more steps, if there is the time.
            step_s = took_s[small] / small
            wanted = min(small * _GROWTH, int(_CALL_S / step_s))
        else:
            step_s = max((took_s[large] - took_s[small]) / (large - small), 1e-9)
            host_s = max(took_s[small] - small * step_s, 0.0)
            wanted = min(steps_for_host_share(host_s, step_s), self._wanted * _GROWTH)
            if self._wanted < 2 * wanted:
                # Estimates differ from call to call: what was reached stays, unless it is far too much.
                wanted = max(wanted, min(self._wanted, int(_CALL_S / step_s)))
        if seconds > _LATEST_S:
            wanted = min(wanted, int(count * _CALL_S / seconds))
            # They were faster once; what counts is now.
            self._seconds = {count: [seconds]}
        wanted = max(1, wanted)
        return wanted if self._agree is None else self._agree(wanted)


class ChosenCalls:
    """Chooses for each pass over data that `fit` and `evaluate` of one model begin.

    Args:
        strategy: Of the model.
        requested: "auto", or None for what `compile` says.

    Raises:
        BatchError: When it is neither.
    """

    def __init__(self, strategy: tf.distribute.Strategy, requested: Any):
        check_steps_per_execution(requested)
        self._requested = requested
        replicas = local_replicas(strategy)
        self._agree = None if replicas.here == replicas.total else functools.partial(least_of_workers, strategy)
        self._passes: weakref.WeakKeyDictionary[Any, StepsPerCall] = weakref.WeakKeyDictionary()
        self.current: StepsPerCall | None = None
        """For the call that comes next; None where `compile` was given a number."""

    def begin_pass(self, model: keras.Model, epoch_iterator: Any) -> None:
        """To be called with each iterator of Keras's, before its first epoch."""
        self.current = None
        if self._requested != "auto" or model.steps_per_execution != 1:
            return
        if epoch_iterator not in self._passes:
            self._passes[epoch_iterator] = StepsPerCall(self._agree)
            join_steps(epoch_iterator, functools.partial(self._calls_of, weakref.ref(epoch_iterator)))

    def _calls_of(self, epoch_iterator: Any, steps: Any, num_steps: int | None) -> Iterator[tuple[int, int, Any]]:
        chosen = self._passes[epoch_iterator()]
        for call in chosen.calls(steps, num_steps):
            # Here and not before: `evaluate` may come between two calls of `fit`.
            self.current = chosen
            yield call
