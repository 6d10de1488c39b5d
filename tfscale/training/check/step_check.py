"""What is done about a first step that is not that of one replica?

What can be told from the two runs is set right: a term that is a sum and not a mean, a metric that needs the whole
batch. What cannot is an error, before anything is updated.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.errors import ParityError, TfscaleError
from tfscale.exact.divided_calls import DrawsBesideError
from tfscale.exact.metrics import metrics_of, reset
from tfscale.exact.terms import Terms
from tfscale.framework.optimizers import gradient_accumulators
from tfscale.gradients.updaters import held_optimizers, innermost, remember_optimizers
from tfscale.replicas.agreement import any_of_workers
from tfscale.replicas.made import made_under
from tfscale.replicas.replica_batch import LOGICAL_REPLICAS, local_replicas
from tfscale.training.check.chance import Chance, slots_of
from tfscale.training.check.check_rows import Amount, CheckRows
from tfscale.training.check.first_step import Steps, TwoRuns
from tfscale.training.check.found_by_all import FoundByAll
from tfscale.training.check.full_float32 import full_float32
from tfscale.training.check.gates import later_states
from tfscale.training.check.kept_elsewhere import describe_iterators, describe_kept_elsewhere, describe_kept_numbers
from tfscale.training.check.no_reference import (
    NoReferenceError,
    agreeing_on_reference,
    describe_no_reference,
)
from tfscale.training.check.other_rows import other_rows
from tfscale.training.check.other_ways import OtherWay, other_ways
from tfscale.training.check.outcome import Outcome
from tfscale.training.check.own_draws import describe_own_draws
from tfscale.training.check.plain_quotients import plain_quotients
from tfscale.training.check.reference import run_reference
from tfscale.training.check.step_cause import OF_LATER, describe_difference, failing_when_divided
from tfscale.training.check.step_differences import (
    Difference,
    bytes_per_number,
    kept_differences,
    log_differences,
    of_all_workers,
    state_differences,
    term_differences,
    tolerance_of,
)
from tfscale.training.check.step_findings import StepFindings, optimizers_met, variables_of
from tfscale.training.check.step_hidden import describe_plain, is_doubt
from tfscale.training.step.own_numbers import OwnNumbers
from tfscale.training.step.several_sizes import describe_several_sizes
from tfscale.training.step.state import State

_log = logging.getLogger(__name__)
# Rounding may make so much more of a state that is far from its start.
_LATER = 10
# Of the size of the first step's gradients: with smaller ones nothing is told from rounding.
_CONVERGED = 1e-3
_SEEN_LATE = "The first step did not show it: what was trained since is not that of one replica."
_SEEN_AT_ONCE = "The steps before it did not show it, and were those of one replica."


class StepCheck:
    """Compares the first step of a kind with that of one replica.

    Args:
        model: Prepared, built and compiled.
        strategy: Its strategy.
        terms: What is known of the terms of this kind of step; what is found is written there.
        steps: The step, in both forms.
        mode: `"warn"` for a warning in place of an error, or any other of `vouching.MODES`.
        what: The step in words, such as "first step".
    """

    def __init__(
        self, model: keras.Model, strategy: tf.distribute.Strategy, terms: Terms, steps: Steps, mode: str, what: str
    ):
        self._model = model
        self._strategy = strategy
        self._terms = terms
        self._mode = mode
        self._what = f"{what} of model {model.name!r}"
        numbers = OwnNumbers(model)
        self._state = State(strategy, numbers)
        self._runs = TwoRuns(steps, strategy, terms, self._state, numbers)
        self._num_bytes = num_bytes = bytes_per_number(model)
        self._tolerance = tolerance_of(num_bytes)
        self._found_by_all = FoundByAll(strategy)
        self._findings = StepFindings(model, strategy, terms, self._runs, num_bytes, self._what)
        self._chance = Chance(
            model, strategy, terms, self._runs, num_bytes, self._what, is_eager=steps.run_eagerly, tells=steps.tells
        )
        self._first_rows: CheckRows | None = None
        self._amount = Amount.MOST
        self._first_scale = 0.0
        self._learned_nothing = False
        self._is_own, self._is_eager, self._tells = steps.is_own, steps.eager, steps.tells
        self._begin = steps.begin
        self._plain = plain_quotients(numbers.functions) if strategy.num_replicas_in_sync > 1 else []

    @full_float32()
    def __call__(self, batch: Any) -> None:
        """Looks at the step for the rows of a batch.

        Args:
            batch: As the iterator of `fit` yields it.

        Raises:
            ParityError: When the step is not that of one replica. Nothing was updated.
        """
        self._tell(describe_plain(self._plain, self._what))
        if self._is_run_so():
            self._tell(self._look_at_as_many_rows_as_it_takes(batch))

    @full_float32()
    def again(self, batch: Any, *, is_next: bool) -> bool:
        """Looks once more, later in training, where a branch may be taken that the first step did not take.

        Args:
            batch: As for the first look; one of other shapes is passed over.
            is_next: Whether all steps so far were looked at: then it is not too late to divide the step otherwise.

        Returns:
            Whether it is, and has to be traced anew.

        Raises:
            ParityError: When the step is no longer that of one replica. The steps before it were made.
        """
        if self._first_rows is None or self._chance.is_drawn or not self._is_run_so():
            return False
        rows = self._rows_of(batch, self._amount)
        if not self._is_eager and rows.specs() != self._first_rows.specs():
            # The step is traced for those.
            return False
        try:
            with self._state.put_back():
                self._begin_anew()
                message = self._found_by_all(lambda: self._compare_again(rows, is_next))
            if message and is_next and not self._look(rows):
                return True
        except NoReferenceError as error:
            message = self._not_checked(error)
        self._tell(message)
        return False

    def _is_run_so(self) -> bool:
        """Whether the step is run in the parts that are looked at: one that was found to need all rows is not."""
        return not (self._runs.in_parts and self._terms.sums_where_read)

    def _compare_again(self, rows: CheckRows, is_next: bool) -> str:
        differences = self._differences_now(rows, _CONVERGED * self._first_scale)
        if not differences:
            return ""
        found = self._describe(differences, rows, self._what.removeprefix("first "))
        return f"{found}\n{_SEEN_AT_ONCE if is_next else _SEEN_LATE}"

    def _tell(self, message: str) -> None:
        if message and self._mode == "warn":
            _log.warning("%s", message)
            # Once is enough.
            self._first_rows = None
        elif message:
            raise ParityError(message)

    def _look_at_as_many_rows_as_it_takes(self, batch: Any) -> str:
        """Most of the batch; all of it for a step that runs on no other number; a few where so many do not fit."""
        why: NoReferenceError | None = None
        for amount in Amount:
            if amount is Amount.FEW and why is not None and not why.takes_too_much:
                break
            try:
                rows = self._take(batch, amount)
                message = self._look(rows)
                self._first_rows, self._amount = rows, amount
                if message or not self._learned_nothing or amount is not Amount.MOST:
                    return message
            except NoReferenceError as error:
                why = error
        return "" if why is None or self._first_rows is not None else self._not_checked(why)

    def _not_checked(self, why: NoReferenceError) -> str:
        if not why.takes_too_much:
            return describe_no_reference(why, self._what)
        _log.warning("the %s could not be checked (%s)", self._what, why)
        return ""

    def _take(self, batch: Any, amount: Amount) -> CheckRows:
        """The rows, on which the step of one replica is traced."""
        with agreeing_on_reference(self._strategy):
            rows = self._rows_of(batch, amount)
            self._runs.trace_alone(rows.whole, rows.specs_of_any_number())
        self._runs.note_draws(rows)
        return rows

    def _rows_of(self, batch: Any, amount: Amount) -> CheckRows:
        return CheckRows.of(batch, self._strategy, amount, logical=LOGICAL_REPLICAS.of(self._model))

    def _look(self, rows: CheckRows) -> str:
        """Sets right what can be; returns what cannot, or an empty text."""
        if self._terms.sums_where_read:
            # Found before the last `compile`, or of fewer rows.
            self._terms.sums_where_read, self._terms.divides = False, None
            self._runs.forget()
        several = rows.have_several_sizes
        message = "" if several else self._look_in_one_way(rows)
        if not message and not several:
            return ""
        draws = ""
        ways = other_ways(self._model, is_own=self._is_own, is_eager=self._is_eager)
        for way in () if self._runs.in_parts else ways:
            if several and way.divides is None:
                continue
            try:
                found = self._look_in_another_way(rows, way)
                if not found:
                    _log.log(way.level, "the %s %s", self._what, way.text)
                    return ""
                message = found if several else message
            except DrawsBesideError as error:
                draws = f"\n{error}"
        if not several and is_doubt(message):
            _log.warning("%s", message)
            return ""
        return (describe_several_sizes(rows.parts[0], message) if several else message) + draws

    def _look_in_one_way(self, rows: CheckRows) -> str:
        message = self._found_by_all(lambda: self._trace_divided(rows))
        if message:
            return message
        remember_optimizers(self._model, optimizers_met(self._terms))
        self._state.name(variables_of(self._model))
        if self._is_eager:
            # No graph tells of others that it uses.
            self._state.add(made_under(self._strategy).variables)
        for optimizer in held_optimizers(self._model):
            self._state.average(gradient_accumulators(innermost(optimizer)))
        with self._state.put_back():
            self._begin_anew()
            return self._found_by_all(lambda: self._compare(rows))

    def _trace_divided(self, rows: CheckRows) -> str:
        with self._dividing(rows):
            self._runs.trace_divided(rows.parts)
        if self._is_eager and self._runs.iterators:
            return describe_iterators(self._runs.iterators, self._what)
        return describe_kept_elsewhere(self._runs.kept_elsewhere, self._what)

    def _look_in_another_way(self, rows: CheckRows, way: OtherWay) -> str:
        """Divides the step otherwise, and keeps to that if it is the cure."""
        terms = self._terms
        outer = terms.sums, terms.gathered
        terms.sums, terms.gathered = set(), set(terms.gathered)
        terms.sums_where_read, terms.divides = True, way.divides
        self._runs.forget()
        message = "It is not traced."
        try:
            with agreeing_on_reference(self._strategy):
                self._runs.trace_alone(rows.whole, rows.specs_of_any_number())
            message = self._look_in_one_way(rows)
        except DrawsBesideError:
            raise
        except (TfscaleError, NoReferenceError) as error:
            # What was found stays: a way in which the step does not even run is no cure.
            message = str(error) or message
        finally:
            if message:
                terms.sums, terms.gathered = outer
                terms.sums_where_read, terms.divides = False, None
                self._runs.forget()
        return message

    def _begin_anew(self) -> None:
        """As at the start of an epoch: of what was counted before, each replica holds another part."""
        if local_replicas(self._strategy).on_several_workers:
            # A metric whose reset keeps what it has counted would hold the rows of this worker only.
            self._state.clear_counted()
        reset(metrics_of(self._model))
        self._state.find_elsewhere(self._begin())
        self._state.clear_averaged()

    def _compare(self, rows: CheckRows) -> str:
        reference, before = run_reference(self._model, self._strategy, self._runs, self._state, rows)
        self._first_scale = reference.scale()
        self._learned_nothing = reference.is_without_gradient()
        with self._dividing(rows):
            ours = self._findings.settle(rows, reference)
        differences = self._differences(ours, reference, before)
        # Where more is not as on one replica, the rows that such a metric is given need not fit together.
        is_of_metrics = {difference.kind for difference in differences} <= {"metric", "log", "variable"}
        if is_of_metrics and self._findings.gather(differences, reference):
            self._runs.forget_divided()
            with self._dividing(rows):
                ours = self._runs.divided(rows.parts)
            differences = self._differences(ours, reference, before)
        with self._dividing(rows):
            self._runs.read_graph(rows.parts, self._what)
        hidden = describe_kept_elsewhere(self._runs.kept_elsewhere, self._what) or self._runs.hidden(self._what)
        if not differences:
            self._findings.gather_untold(reference, before)
            if hidden:
                return hidden
            if self._runs.own_draws:
                _log.warning("%s", describe_own_draws(self._runs.own_draws, self._what))
            self._warn_of_kept(kept_differences(ours, reference, self._tolerance))
            later = self._differences_later(rows)
            return self._describe(later, rows) + OF_LATER if later else self._runs.in_doubt(self._what)
        if self._chance.explains(differences, rows, ours, reference, before, self._compared):
            # What the graph shows holds for any numbers, those on an edge too.
            return hidden or self._runs.in_doubt(self._what)
        return self._describe(differences, rows)

    def _warn_of_kept(self, names: Sequence[str]) -> None:
        if names and not self._chance.is_drawn:
            _log.warning("%s", describe_kept_numbers(names, self._what))

    def _describe(self, differences: Sequence[Difference], rows: CheckRows, what: str = "") -> str:
        count = self._strategy.num_replicas_in_sync
        how = {"in_parts": self._runs.in_parts, "is_eager": self._is_eager}
        return describe_difference(differences, what or self._what, count, rows.num_rows, **how)

    def _differences_later(self, rows: CheckRows) -> list[Difference]:
        """What differs in a state in which nothing is zero that may count later, such as the weight of a loss."""
        with self._state.put_back():
            counted = [each for metric in metrics_of(self._model) for each in metric.variables]
            updated = [
                each
                for optimizer in held_optimizers(self._model)
                for each in optimizer.variables
                if each is not innermost(optimizer).iterations
            ]
            numbers = self._state.numbers([*counted, *updated])
            for state in later_states(self._runs.reference, numbers):
                # Else it is no state that the step was written for.
                with self._state.put_back(), contextlib.suppress(NoReferenceError):
                    self._state.put(state)
                    differences = self._differences_now(rows)
                    if differences:
                        return differences
            for others in other_rows(self._runs.reference, rows):
                with contextlib.suppress(NoReferenceError):
                    differences = self._differences_now(others, of_finite=True)
                    if differences:
                        return differences
            return self._differences_of_draws(rows)

    def _differences_of_draws(self, rows: CheckRows) -> list[Difference]:
        """What differs, however little, where a number that is drawn for the whole batch is another one."""
        for level in self._runs.levels():
            with self._runs.drawing(level), contextlib.suppress(NoReferenceError):
                differences = self._differences_now(rows, of_finite=True, far=1)
                if differences:
                    return differences
        return []

    def _differences_now(
        self, rows: CheckRows, least: float = 0.0, *, of_finite: bool = False, far: int = _LATER
    ) -> list[Difference]:
        """What differs in the state that there is, by more than chance; gradients below the least are rounding."""
        reference, before = run_reference(self._model, self._strategy, self._runs, self._state, rows)
        with self._dividing(rows):
            ours = self._runs.divided(rows.parts)
        if of_finite and any_of_workers(self._strategy, not reference.is_finite()):
            return []
        differences = self._differences(ours, reference, before, far * self._tolerance)
        # Near a minimum the gradients are what rounding leaves of numbers that cancel.
        if not differences or reference.scale() < least:
            return []
        is_chance = self._chance.explains(differences, rows, ours, reference, before, self._compared)
        return [] if is_chance else differences

    def _dividing(self, rows: CheckRows) -> contextlib.AbstractContextManager[None]:
        """Says so where a step fails that one replica can take."""
        return failing_when_divided(self._what, [int(part.num_examples) for part in rows.parts], rows.num_rows)

    def _differences(
        self, ours: Outcome, reference: Outcome, before: dict[str, np.ndarray], tolerance: float | None = None
    ) -> list[Difference]:
        """What differs by more than rounding on any worker: what the step computed first, then what it left."""
        least = tolerance or self._tolerance
        found = [row for row in self._compared(ours, reference, before) if row.relative > least]
        return of_all_workers(self._strategy, found)

    def _compared(self, ours: Outcome, reference: Outcome, before: dict[str, np.ndarray]) -> list[Difference]:
        terms = term_differences(ours.if_mean, reference.if_mean, self._num_bytes)
        sums = term_differences(ours.if_sum, reference.if_mean, self._num_bytes)
        # Of reads, what is made of them is compared, beside the largest of its kind.
        met = {term: row for term, row in terms.items() if term.kind not in ("log", "read")}
        rows = [sums.get(term, row) if term in self._terms.sums else row for term, row in met.items()]
        rows += log_differences(ours, reference, self._tells)
        # What another worker has counted is not here; its logs are.
        left_out = self._state.divided() if local_replicas(self._strategy).on_several_workers else set()
        return rows + state_differences(ours, reference, before, slots_of(self._model), left_out, self._num_bytes)
