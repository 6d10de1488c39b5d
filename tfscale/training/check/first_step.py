"""Is the first step on N replicas that of one replica?

Before anything is updated, the step is run twice on the same rows from the same state: divided over the replicas, and
as one replica on all of these rows: the reference, in which only the answers of the strategy are tfscale's.
What the step makes of its rows is compared, and so is what it leaves in every variable; then the state is put back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.exact.randomness import draw_as_first_here, leaving_rows_open, seed_generators
from tfscale.exact.silence import Level, draws_one_number, silenced
from tfscale.exact.terms import Recorder, Terms, meet_term, meeting_terms
from tfscale.framework.graphs import captured_from_outside, without_graph_optimizer
from tfscale.gradients.double_buffer import at_once
from tfscale.gradients.own_noise import own_noise
from tfscale.replicas.all_reduce import comparing_sizes
from tfscale.replicas.made import made_under
from tfscale.replicas.one_trace import on_parts, own_part
from tfscale.replicas.own_functions import trace_anew
from tfscale.replicas.own_share import as_lone_replica, knowing_sizes, sizes_of_parts
from tfscale.replicas.progress import counting_nothing
from tfscale.replicas.replica_batch import LocalReplicas, ReplicaBatch, local_replicas, mark_rows, places_of_rows
from tfscale.replicas.replica_count import noting_plain_numbers
from tfscale.replicas.xla import without_xla
from tfscale.training.check.assignments import assigned_apart
from tfscale.training.check.check_rows import CheckRows, specs_of_any_size
from tfscale.training.check.kept_elsewhere import kept_elsewhere
from tfscale.training.check.outcome import Outcome, outcome_of
from tfscale.training.check.own_draws import own_draws
from tfscale.training.check.quotients import divided_apart
from tfscale.training.check.step_hidden import describe_doubt, describe_hidden, describe_plain
from tfscale.training.check.thresholds import decided_apart
from tfscale.training.step.own_numbers import OwnNumbers
from tfscale.training.step.state import State

_log = logging.getLogger(__name__)
_WITH_DRAWS = "alone, with draws"


@dataclasses.dataclass(frozen=True)
class Steps:
    """One kind of step, in the two forms that are compared.

    Args:
        divided: Given a replica's rows, runs the step as it will be, and returns what `logs_of` takes.
        alone: Given all rows, runs the step as Keras would on one device, and returns its logs.
        logs_of: Makes logs of what `divided` returned on one replica.
        begin: Gives metrics that were reset what they begin with instead, and returns what of that another worker has.
        eager: Whether the model is run eagerly.
        as_graph: Whether it is looked at as a graph all the same.
        is_own: Whether the user's class defines the step.
        tells: What its logs are: `"log"` or `"prediction"`.
        in_parts: Whether `divided` runs a replica's rows in parts, one after the other. Then what leaves the parts is
            compared, and not what is met in one of them.
    """

    divided: Callable[[ReplicaBatch], Any]
    alone: Callable[[Any], dict[str, Any]]
    logs_of: Callable[[Any], dict[str, Any]]
    begin: Callable[[], Sequence[tuple[keras.Variable, np.ndarray]]]
    eager: bool = False
    as_graph: bool = False
    is_own: bool = False
    tells: str = "log"
    in_parts: bool = False

    @property
    def run_eagerly(self) -> bool:
        """Whether both forms are."""
        return self.eager and not self.as_graph


class TwoRuns:
    """The two forms of a step, traced, with a state that is put back after each run.

    Args:
        steps: What to run.
        strategy: On whose replicas.
        terms: What is known of the step so far.
        state: All variables that the step may change.
        numbers: Of Python, that it may change.
    """

    def __init__(self, steps: Steps, strategy: tf.distribute.Strategy, terms: Terms, state: State, numbers: OwnNumbers):
        self._numbers = numbers
        self._steps = steps
        self._strategy = strategy
        self._replicas: LocalReplicas = local_replicas(strategy)
        self._terms = terms
        self._state = state
        self.assigned_apart: list[str] = []
        """Names of variables to which every replica of the divided step, as traced last, assigns its own value."""
        self.decided_apart: list[str] = []
        """Names of operations of it that go by whether a number of a replica's own rows lies beyond a threshold."""
        self.divided_apart: list[str] = []
        """Names of operations of it that divide by a sum over a replica's own rows."""
        self.taken_plain: list[str] = []
        """What it makes of the number of replicas and TensorFlow takes for a plain number, as it runs eagerly."""
        self.own_noise: list[str] = []
        """Names of operations of it that draw what a replica adds to its gradients."""
        self.own_draws: list[str] = []
        """Names of operations of it that draw for the whole batch, and others on each replica."""
        self.kept_elsewhere: list[str] = []
        """What it changes that is no variable."""
        self.reference: Any = None
        """The step on one replica as it was traced last, a `tf.types.experimental.ConcreteFunction`; None if eager."""
        self._traced: dict[str, tuple[Callable[..., Any], list[Any]]] = {}
        self._at_level: dict[str, Callable[[Level], Callable[..., Any]]] = {}

    @contextlib.contextmanager
    def drawing(self, level: Level) -> Iterator[None]:
        """Has another number stand for single ones that the step draws."""
        kept = dict(self._traced)
        try:
            for name, at_level in self._at_level.items():
                if name in kept:
                    self._traced[name] = at_level(level), kept[name][1]
            yield
        finally:
            self._traced = kept

    def levels(self) -> list[Level]:
        """What else may stand for the single numbers that the step on one replica draws, if it draws any."""
        draws = self.reference is not None and draws_one_number(self.reference)
        return [level for level in Level if draws and level is not Level.MIDDLE]

    def hidden(self, what: str) -> str:
        """What the graph of the divided step shows and its numbers do not, as the text of an error; or nothing.

        Args:
            what: The step, for people.
        """
        hidden = describe_hidden(self.assigned_apart, self.decided_apart, self.own_noise, what)
        return hidden or describe_plain(self.taken_plain, what)

    def in_doubt(self, what: str) -> str:
        """As `hidden`, of what may be the same for any batch."""
        return describe_doubt(self.divided_apart, what)

    @property
    def in_parts(self) -> bool:
        """Whether the divided step runs a replica's rows in parts."""
        return self._steps.in_parts

    @property
    def iterators(self) -> list[str]:
        """Names of iterators that it may take from, of which nobody can give back what was taken."""
        return self._numbers.iterators

    def forget_divided(self) -> None:
        """Has the divided form traced anew, when something else is known of its terms."""
        self._traced.pop("divided", None)
        trace_anew()

    def forget(self) -> None:
        """Has both forms traced anew."""
        self._traced.clear()
        trace_anew()

    def trace_alone(self, rows: Any, of_any_number: Any = None) -> None:
        """Traces the step on one replica, before it is run.

        Args:
            rows: All of them.
            of_any_number: Specs of them with their number left open, as Keras traces them as a rule: for a step that
                does not run where it is known. `tf.range(n)` is of another type there in float64.
        """
        try:
            self._traced["alone"] = self._trace(self._alone, rows)
        except (TypeError, ValueError):
            if of_any_number is None or self._steps.run_eagerly:
                raise
            self._traced["alone"] = self._trace(self._alone, of_any_number)

    def note_draws(self, rows: CheckRows) -> None:
        """Traces the step on one replica with any number of rows, which tell from theirs what it draws for a batch.

        On several workers. The replicas of one process are traced so anyway.

        Args:
            rows: All of them.
        """
        if not self._replicas.on_several_workers:
            return

        def alone(given: Any) -> Any:
            with leaving_rows_open():
                return self._alone(given, [])

        try:
            with self._numbers.unchanged():
                tf.function(alone, autograph=False).get_concrete_function(rows.specs_of_any_number())
        # Not every step runs on any number of rows.
        except Exception as error:
            _log.info("the step on one replica takes no other rows: %s: %s", type(error).__name__, error)

    def trace_divided(self, parts: Sequence[ReplicaBatch]) -> None:
        """Traces the divided step: of both all variables must be known, before either is run."""
        common = self._of_any_size(parts)
        if common is not None:
            try:
                self._traced["divided"] = self._trace(self._divided, common)
                return
            except Exception as error:
                _log.info("the divided step is traced for each size of a part: %s: %s", type(error).__name__, error)
        self._traced["divided"] = self._trace(self._divided, list(parts))

    def _of_any_size(self, parts: Sequence[ReplicaBatch]) -> list[ReplicaBatch] | None:
        if self._replicas.total == 1:
            return None
        # What cannot be traced with the rows of one worker must be seen there before any waits for another.
        return specs_of_any_size(parts, is_always=not self._replicas.on_several_workers)

    def read_graph(self, parts: Sequence[ReplicaBatch], what: str) -> None:
        """Traces the divided step where it runs eagerly, for what its graph shows and its numbers do not.

        Args:
            parts: Of all replicas of this process.
            what: The step, for people.
        """
        if not self._steps.run_eagerly or self._steps.in_parts:
            return
        traced = tf.function(lambda given: self._divided(given, []), autograph=False)
        try:
            with self._numbers.unchanged(), noting_plain_numbers() as self.taken_plain:
                traced.get_concrete_function(self._of_any_size(parts) or list(parts))
        # Code that reads numbers in Python has no graph, and may raise anything there.
        except Exception as error:
            _log.warning(
                "the %s runs eagerly, and has no graph that could be read (%s): what goes by a number of the batch "
                "beyond a threshold that the first batch does not reach, such as clipping that begins with an outlier "
                "or an `if` of Python, is not seen",
                what,
                f"{type(error).__name__}: {error}".splitlines()[0],
            )

    def divided(self, parts: Sequence[ReplicaBatch], shaken_by: float = 0.0) -> Outcome:
        """Runs the step on the parts of this process's replicas; its weights are changed by this share before."""
        return self._run("divided", list(parts), shaken_by)

    def alone(self, rows: Any, shaken_by: float = 0.0) -> Outcome:
        """Runs the step on all rows, on one replica; its weights are changed by this share before."""
        return self._run("alone", rows, shaken_by)

    def alone_with_draws(self, rows: Any) -> Outcome | None:
        """As `alone`, once it is traced, with numbers that it draws in the place of those that are held still.

        None where it draws nothing.
        """
        return self._run(_WITH_DRAWS, rows, 0.0) if _WITH_DRAWS in self._traced else None

    def _run(self, name: str, data: Any, shaken_by: float) -> Outcome:
        if name not in self._traced:
            (self.trace_divided if name == "divided" else self.trace_alone)(data)
        call, layout = self._traced[name]
        with self._state.put_back():
            is_alone = name != "divided"
            if is_alone:
                self._state.collect()
            added = self._state.shake(shaken_by) if shaken_by else {}
            # It is run once or a few times: to optimise its graph would take longer than all of them.
            with without_graph_optimizer():
                values = [np.asarray(value) for value in call(data)]
            state = self._state.read(alone=is_alone)
            apart = {} if is_alone else self._state.apart()
            kept = self._numbers.read_containers()
        # What was added is nothing that the step has made.
        state |= {name: state[name] - more for name, more in added.items() if name in state}
        outcome = outcome_of(values, layout[0], state)
        if self._steps.in_parts:
            outcome = outcome.of_whole_step()
        return dataclasses.replace(outcome, apart=apart, kept=kept)

    def _trace(self, function: Callable[[Any, list[Any]], Any], data: Any) -> tuple[Callable[..., Any], list[Any]]:
        layout: list[Any] = []
        if self._steps.run_eagerly:
            # What each shows to a graph is read once more, of the divided form alone: `read_graph`.
            return lambda given: function(given, layout), layout
        traced = tf.function(lambda given: function(given, layout), autograph=False, reduce_retracing=True)
        with self._numbers.unchanged():
            concrete = traced.get_concrete_function(data)
        if function == self._alone:
            self.reference = concrete
        self._state.add(concrete.graph.variables)
        # Those that are only assigned to are known by what the graph holds of them.
        handles = set(map(id, captured_from_outside(concrete.graph).values()))
        for variable in made_under(self._strategy).variables:
            copies = self._strategy.experimental_local_results(variable)
            if any(id(copy.handle) in handles for copy in copies):
                self._state.add([variable])
        states = [generator.state.value for generator in seed_generators(self._strategy)]
        copies = [copy for state in states for copy in self._strategy.experimental_local_results(state)]
        call = silenced(concrete, copies)
        name = "alone" if function == self._alone else "divided"
        self._at_level.pop(name, None)
        if call is not concrete:
            self._at_level[name] = functools.partial(silenced, concrete, copies)
        if function == self._alone and call is not concrete:
            self._traced[_WITH_DRAWS] = traced, layout
        return (traced if call is concrete else call), layout

    def _divided(self, parts: list[ReplicaBatch], layout: list[Any]) -> list[Any]:
        for part in parts:
            mark_rows(part)
        layouts: list[Any] = []
        held, known_sizes = self._numbers.held(), sizes_of_parts(parts, self._replicas)
        is_open = known_sizes is None and not tf.executing_eagerly()

        def on_replica() -> list[Any]:
            part = own_part(parts, self._replicas.first)
            recorder = Recorder(None if tf.executing_eagerly() else tf.compat.v1.get_default_graph())
            own, met = self._numbers.of_replica(held), meeting_terms(self._terms, recorder)
            with (
                own,
                leaving_rows_open(is_open),
                knowing_sizes(known_sizes),
                at_once(),
                without_xla(),
                counting_nothing(),
                comparing_sizes(),
                met,
            ):
                outputs = self._steps.divided(part)
                recorder.finish()
            flat, layout = _flatten(outputs, recorder)
            layouts.append(layout)
            return flat

        known = 0 if tf.executing_eagerly() else len(tf.compat.v1.get_default_graph().get_operations())
        with on_parts(parts):
            results = self._strategy.run(on_replica)
        if not tf.executing_eagerly() and not self._steps.in_parts:
            self.kept_elsewhere = kept_elsewhere(self._strategy, known)
            self.assigned_apart = assigned_apart(self._strategy, known)
            sizes = {size for part in parts for size in _sizes(part)}
            self.decided_apart = decided_apart(self._strategy, known, results, sizes)
            self.divided_apart = divided_apart(self._strategy, known, results, sizes)
            self.own_noise = own_noise(self._strategy, known)
            self.own_draws = own_draws(self._strategy, known, sizes)
        flat = [self._strategy.experimental_local_results(value)[0] for value in results]
        outputs, records = layouts[-1]
        size = len(tf.nest.flatten(outputs))
        logs = self._steps.logs_of(tf.nest.pack_sequence_as(outputs, flat[:size]))
        layout[:] = [(_shape_of(logs), records)]
        return [*_as_tensors(logs), *flat[size:]]

    def _alone(self, rows: Any, layout: list[Any]) -> list[Any]:
        recorder = Recorder(None if tf.executing_eagerly() else tf.compat.v1.get_default_graph())
        if not tf.executing_eagerly():
            draw_as_first_here(self._strategy)
        with as_lone_replica(self._strategy), at_once(), meeting_terms(self._terms, recorder):
            # A metric's result may be a variable: the first copy counts, for every worker runs the whole step.
            logs = keras.tree.map_structure(self._first_copy, dict(self._steps.alone(rows)))
            for path, value in keras.tree.flatten_with_path(logs):
                meet_term("log", None, f"log {'.'.join(map(str, path))!r}", [value])
        flat, (_, records) = _flatten([], recorder)
        layout[:] = [(_shape_of(logs), records)]
        return [*_as_tensors(logs), *flat]

    def _first_copy(self, value: Any) -> tf.Tensor:
        variable = value.value if isinstance(value, keras.Variable) else value
        return tf.convert_to_tensor(self._strategy.experimental_local_results(variable)[0])


def _sizes(part: ReplicaBatch) -> set[int | None]:
    """How many rows its leaves have, as far as their shapes tell."""
    flat = tf.nest.flatten(part.data)
    shapes = [tf.TensorShape(flat[place].shape) for place in places_of_rows(part)]
    return {shape[0] if shape.rank else None for shape in shapes}


def _flatten(outputs: Any, recorder: Recorder) -> tuple[list[Any], Any]:
    flat, layout = list(tf.nest.flatten(outputs)), []
    for term, record in recorder.records.items():
        layout.append((term, record.names))
        flat += [*record.if_mean, *record.if_sum]
    return flat, (tf.nest.map_structure(lambda _: 0, outputs), layout)


def _shape_of(logs: dict[str, Any]) -> list[str]:
    return [".".join(map(str, path)) for path, _ in keras.tree.flatten_with_path(dict(logs))]


def _as_tensors(logs: dict[str, Any]) -> list[Any]:
    return [tf.convert_to_tensor(value) for value in keras.tree.flatten(dict(logs))]
