"""How many steps does one call of the compiled step take, when tfscale is to choose?

Between two calls the host is busy: callbacks, the logs, the call itself. A call of k steps takes `T(k) = h + k s`,
where h is the host's part and s a step's, so the host's share is `h / T(k)`. k grows until that is small; but a
callback hears of a step when its call ends, so that a call must not take longer than about a second.
"""

from __future__ import annotations

import functools
import logging
import math
import statistics
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.errors import BatchError
from tfscale.exact.plain_step import has_own_step
from tfscale.framework.fit import join_steps, restored_epoch
from tfscale.framework.models import runs_eagerly
from tfscale.recovery.chief_only import inner_callback
from tfscale.recovery.one_call import listed
from tfscale.replicas.agreement import least_of_workers
from tfscale.replicas.owners import Fact, PreparedModel
from tfscale.replicas.replica_batch import local_replicas
from tfscale.training.call.batch_readers import any_reads_batches
from tfscale.training.call.joining import TracedSteps, pays_to_join, steps_to_come
from tfscale.training.step.call_size import MOST, most_steps_of, note_steps_of_call

_log = logging.getLogger(__name__)

HOST_SHARE = 0.02
# Calls of half of what is promised: later ones may be slower than those that were timed.
_CALL_S, _LATEST_S = 0.5, 1.0
# The first call of a pass traces the function, or makes the data begin.
_NOT_TIMED = 1
_TIMED = 3
_GROWTH = 16
# Below, a trace pays for nobody, and no worker has to ask the others: all of them know how many steps are to come.
_FEWEST_ASKED = 256

# The largest number of steps that a call of `fit` or `evaluate` took, where tfscale chose it.
MOST_STEPS = Fact[int](PreparedModel, "steps per call", str)
_OFF = (None, 1)


def check_steps_per_execution(value: Any) -> None:
    """Checks `steps_per_execution` of `DataParallel`.

    Raises:
        BatchError: When it is none of "auto", "always", 1 and None.
    """
    if isinstance(value, bool | float) or value not in (*_OFF, "auto", "always"):
        raise BatchError(
            '`steps_per_execution` must be "auto", "always", or None for what `compile` says.\n'
            f"Received: steps_per_execution={value!r}. Give a number to `model.compile`, which goes before."
        )


def describe_steps_per_call(model: keras.Model) -> str:
    """A line of what was chosen for a model; empty where each call took one step, or as many as `compile` says."""
    most = MOST_STEPS.of(model, 1)
    if most == 1:
        return ""
    return f"Steps per call of {model.name!r}: up to {most}, chosen (steps_per_execution=None turns that off)."


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
        host_clock: Seconds of the processor in this thread: of a call of one step, the host's part, or a little less.
        begins_alone: Whether calls take one step until more are worth a trace of their own.
        num_passes: Over the data in this call of `fit`.
        may_join: Whether this worker has nothing against it.
        most: Returns how many steps a call may take now.
    """

    def __init__(
        self,
        agree: Callable[[int], int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        host_clock: Callable[[], float] = time.thread_time,
        *,
        begins_alone: bool = False,
        num_passes: int = 1,
        may_join: bool = True,
        most: Callable[[], float] = lambda: math.inf,
    ):
        self._agree = agree
        self._clock = clock
        self._host_clock = host_clock
        self.begins_alone = begins_alone
        """Whether a call of one step is that of a function of one step."""
        self.traced = TracedSteps()
        """What is known of the function that is called."""
        self._joins = not begins_alone
        self._passes_after = num_passes
        self._may_join = may_join
        self._most = most
        self._earlier = 0
        self._begun = False
        self._host_s: list[float] = []
        self._not_timed = _NOT_TIMED
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
        if not self._passes_after or not self._begun:
            # As many as there were before will come in other passes, unless it is known how many these are.
            self._earlier, self._begun = self.traced.num_steps, True
        self._passes_after = max(self._passes_after - 1, 0)
        for begin, end, data in steps:
            left = self._wanted if num_steps is None else min(self._wanted, num_steps - begin)
            self.count = 1
            while self.count < left:
                following = next(steps, None)
                if following is None:
                    break
                end = following[1]
                self.count += 1
            start_s, host_s = self._clock(), self._host_clock()
            yield begin, end, data
            seconds, self._host_s = self._clock() - start_s, [*self._host_s[-2:], self._host_clock() - host_s]
            if self._joins:
                self.observe(self.count, seconds)
            else:
                self._observe_alone(seconds, end + 1, num_steps)
            self.traced.num_steps += self.count

    def stay_alone(self) -> None:
        """Is told that there can be no trace for several steps."""
        self.traced.cannot_join, self.traced.is_joined, self._joins = True, False, False
        self._wanted = self.count = 1

    def _observe_alone(self, seconds: float, done: int, num_steps: int | None) -> None:
        """Takes note of a call of one step, and has later ones take several where that pays."""
        self._num_calls += 1
        if self.traced.first_call_s is None:
            self.traced.first_call_s = seconds
        if self._num_calls <= _NOT_TIMED:
            return
        timed = self._seconds.setdefault(1, [])
        timed.append(seconds)
        del timed[:-_TIMED]
        if self._num_calls < self._decide_at:
            return
        # Workers ask each other each time.
        self._decide_at = 2 * self._num_calls
        step_s = statistics.median(timed)
        left = steps_to_come(done, num_steps, passes_after=self._passes_after, earlier=self._earlier)
        if self._agree is not None and not self.traced.is_joined and left < _FEWEST_ASKED:
            return
        joins = self._may_join and not self.traced.cannot_join and 2 * step_s <= _CALL_S
        trace_s = 0.0 if self.traced.is_joined else self.traced.first_call_s
        joins = joins and pays_to_join(statistics.median(self._host_s), left, trace_s)
        if bool(joins) if self._agree is None else self._agree(int(joins)):
            _log.info("fit or evaluate: a call takes several steps from here on, of which some %d are to come", left)
            self.traced.is_joined = self._joins = True
            self._wanted = self._choose(1, seconds)
            # The next call traces.
            self._not_timed = self._num_calls + 1
            self._decide_at = self._num_calls + 1 + _TIMED

    def observe(self, count: int, seconds: float) -> None:
        """Takes note of a call, and chooses how many steps the next one takes."""
        self._num_calls += 1
        if self._num_calls <= self._not_timed:
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
        wanted = int(max(1, min(wanted, self._most())))
        return wanted if self._agree is None else self._agree(wanted)


class _Call(NamedTuple):
    """A call of `fit` or `evaluate`."""

    name: str
    reads_batches: bool
    num_epochs: int
    limiting: weakref.WeakSet[Any]
    """Callbacks that say how many steps a call may take: held only by the call of `fit` itself."""


class ChosenCalls:
    """Chooses for each pass over data that `fit` and `evaluate` of one model begin.

    Args:
        strategy: Of the model.
        requested: "auto" for where nobody can tell, "always", or None for what `compile` says.

    Raises:
        BatchError: When it is none of these.
    """

    def __init__(self, strategy: tf.distribute.Strategy, requested: Any):
        check_steps_per_execution(requested)
        self._requested = requested
        self._agree = (
            functools.partial(least_of_workers, strategy) if local_replicas(strategy).on_several_workers else None
        )
        self._passes: weakref.WeakKeyDictionary[Any, StepsPerCall] = weakref.WeakKeyDictionary()
        self._traced: weakref.WeakKeyDictionary[Any, TracedSteps] = weakref.WeakKeyDictionary()
        # Of a model that was not prepared when its call began, nothing is known.
        self._call: _Call | None = None
        self.current: StepsPerCall | None = None
        """For the call that comes next; None where `compile` was given a number."""

    def begin_call(self, model: keras.Model, name: str, arguments: Mapping[str, Any]) -> None:
        """To be called with what `fit` and `evaluate` are given."""
        # A method of the user's own may give Keras's more callbacks than it was given.
        is_own = getattr(type(model), name) is not getattr(keras.Model, name)
        reads = is_own or any_reads_batches(arguments.get("callbacks"), name)
        epochs = (arguments.get("epochs") or 1) - (arguments.get("initial_epoch") or 0) if name == "fit" else 1
        inner = [inner_callback(each) for each in listed(arguments.get("callbacks"))] if name == "fit" else []
        self._call = _Call(name, reads, epochs, weakref.WeakSet(each for each in inner if hasattr(each, MOST)))
        if name == "fit":
            note_steps_of_call(model, None)

    def stays_alone(self, can_trace: Callable[[], bool]) -> bool:
        """Whether the call that comes next, which was to take several steps, cannot; asked for once per function."""
        chosen = self.current
        if chosen is None or not chosen.begins_alone or chosen.traced.can_join:
            return False
        if can_trace():
            chosen.traced.can_join = True
            return False
        chosen.stay_alone()
        return True

    def begin_pass(self, model: keras.Model, epoch_iterator: Any) -> None:
        """To be called with each iterator of Keras's, before its first epoch."""
        self.current = None
        if self._requested in _OFF or model.steps_per_execution != 1:
            return
        call = self._call
        if call is None or (self._requested == "auto" and not self._may_begin(model, call)):
            return
        if epoch_iterator not in self._passes:
            self._passes[epoch_iterator] = self._new_pass(model, call)
            calls = functools.partial(self._calls_of, weakref.ref(epoch_iterator), model, call.name)
            join_steps(epoch_iterator, calls)

    def _may_begin(self, model: keras.Model, call: _Call) -> bool:
        """Whether calls of several steps may come of it, on some worker at least: all have to ask each other then."""
        if runs_eagerly(model) or has_own_step(model, "train_step" if call.name == "fit" else "test_step"):
            return False
        return self._agree is not None or not call.reads_batches

    def _new_pass(self, model: keras.Model, call: _Call) -> StepsPerCall:
        most = functools.partial(most_steps_of, call.limiting)
        if self._requested == "always":
            return StepsPerCall(self._agree, most=most)
        passes = max(call.num_epochs - (restored_epoch(model) if call.name == "fit" else 0), 1)
        may_join = not call.reads_batches
        return StepsPerCall(self._agree, begins_alone=True, num_passes=passes, may_join=may_join, most=most)

    def _calls_of(
        self, epoch_iterator: Any, model: keras.Model, name: str, steps: Any, num_steps: int | None
    ) -> Iterator[tuple[int, int, Any]]:
        chosen = self._passes[epoch_iterator()]
        # Another one than in the last epoch, if a callback has it made anew.
        function = model.train_function if name == "fit" else model.test_function
        chosen.traced = self._traced.setdefault(function, TracedSteps())
        for call in chosen.calls(steps, num_steps):
            # Here and not before: `evaluate` may come between two calls of `fit`.
            self.current = chosen
            if name == "fit":
                note_steps_of_call(model, chosen.count)
            if chosen.count > MOST_STEPS.of(model, 1):
                MOST_STEPS.set(model, chosen.count)
            yield call
