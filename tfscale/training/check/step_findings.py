"""Which terms of a step are sums over the examples, and which metrics need the whole batch?

Told from the step divided over the replicas, beside that of one replica on the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfscale.exact.foreign import is_of_keras
from tfscale.exact.metrics import metrics_of
from tfscale.exact.terms import Term, Terms
from tfscale.framework.losses import loss_tracker
from tfscale.gradients.updaters import held_optimizers
from tfscale.replicas.agreement import agree_with_chief
from tfscale.training.check.check_rows import CheckRows
from tfscale.training.check.first_step import TwoRuns
from tfscale.training.check.outcome import Outcome
from tfscale.training.check.step_differences import Difference, term_differences, tolerance_of

_log = logging.getLogger(__name__)
# Terms upstream, such as a layer's loss, change those downstream: so often are both looked at again.
_MOST_ROUNDS = 5
# A penalty may be zero for ordinary rows, and no one could tell a sum from a mean.
_SCALES = (10.0, -10.0, 100.0)


class StepFindings:
    """Writes down what two runs of a step tell of its terms.

    Args:
        model: Whose step it is.
        strategy: Its strategy.
        terms: Where it is written.
        runs: The step, in both forms.
        bytes_per_number: Of the narrowest floating-point numbers with which the model computes.
        what: The step in words.
    """

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        terms: Terms,
        runs: TwoRuns,
        bytes_per_number: int,
        what: str,
    ):
        self._model = model
        self._strategy = strategy
        self._terms = terms
        self._runs = runs
        self._bytes_per_number = bytes_per_number
        self._tolerance = tolerance_of(bytes_per_number)
        self._what = what

    def settle(self, rows: CheckRows, reference: Outcome) -> Outcome:
        """Finds out which terms are sums; returns the outcome of the divided step that knows."""
        ours = self._runs.divided(rows.parts)
        if self._runs.in_parts:
            # Of one pass over all rows it is known already.
            return ours
        for _ in range(_MOST_ROUNDS):
            sums = self._sums(ours, reference, self._terms.sums)
            if sums == self._terms.sums:
                break
            self._terms.sums = sums
            self._runs.forget_divided()
            ours = self._runs.divided(rows.parts)
        if self._settle_zeros(rows, reference):
            self._runs.forget_divided()
            ours = self._runs.divided(rows.parts)
        for term in sorted(self._terms.sums, key=lambda term: term.label):
            _log.info("model %r: %s of %s is a sum over the examples", self._model.name, term.kind, term.label)
        return ours

    def _sums(self, ours: Outcome, reference: Outcome, known: set[Term]) -> set[Term]:
        if_mean = term_differences(ours.if_mean, reference.if_mean, self._bytes_per_number)
        if_sum = term_differences(ours.if_sum, reference.if_mean, self._bytes_per_number)
        order = list(if_mean)
        found = {
            term
            for term in order
            if if_mean[term].relative > self._tolerance and if_sum.get(term, if_mean[term]).relative <= self._tolerance
        }
        # A term that is zero in both runs says nothing: what was known of it stays.
        found |= {term for term in known if term in if_mean and _is_zero(reference.if_mean.get(term, {}))}
        decided = agree_with_chief(self._strategy, [int(term in found) for term in order])
        return {term for term, is_sum in zip(order, decided, strict=True) if is_sum}

    def _settle_zeros(self, rows: CheckRows, reference: Outcome) -> bool:
        """Tries other rows for terms that were zero; returns whether one was found to be a sum."""
        left = {
            term for term, record in reference.if_mean.items() if term.kind not in ("log", "read") and _is_zero(record)
        } - self._terms.sums
        found: set[Term] = set()
        for scale in _SCALES:
            if not left:
                break
            other = rows.times(scale)
            expected, ours = self._runs.alone(other.whole), self._runs.divided(other.parts)
            told = {term for term in left if not _is_zero(expected.if_mean.get(term, {}))}
            found |= told & self._sums(ours, expected, set())
            left -= told
        for term in left:
            _log.warning(
                "%s of %s, in the %s, was zero in every try, and is taken for a mean over the examples. Where it is a "
                "sum, write tfscale.sum_over_examples(...) around it",
                term.kind,
                term.label,
                self._what,
            )
        self._terms.sums |= found
        return bool(found)

    def gather(self, differences: Sequence[Difference], reference: Outcome) -> bool:
        """Gives the whole batch to metrics that are not as on one replica; returns whether there are any."""
        names = {difference.name for difference in differences}
        metrics = metrics_of(self._model)
        found = {id(metric) for metric in metrics if any(each.path in names for each in metric.variables)}
        # On several workers, what others have counted is not compared, and logs are.
        foreign = [metric for metric in metrics if not is_of_keras(type(metric))]
        for log in (difference.name for difference in differences if difference.kind == "log"):
            # A log that a step names itself may be that of any.
            answering = [metric for metric in foreign if _is_log_of(metric, log)] or foreign
            found |= set(map(id, answering))
        # What is one number of each replica already has no rows to be gathered.
        found -= {term.owner for term in reference.if_mean if term.kind == "metric"}
        found -= {id(loss_tracker(self._model))} if self._model.compiled else set()
        is_new = bool(found - self._terms.gathered)
        self._terms.gathered |= found
        return is_new

    def gather_untold(self, reference: Outcome, before: dict[str, np.ndarray]) -> None:
        """Gives the whole batch to foreign metrics of which these rows say nothing, as their states did not move."""
        for metric in metrics_of(self._model):
            if is_of_keras(type(metric)) or any(term.owner == id(metric) for term in reference.if_mean):
                continue
            moved = [
                not np.array_equal(reference.state[each.path], before[each.path])
                for each in metric.variables
                if each.path in before and each.path in reference.state
            ]
            if not all(moved) and id(metric) not in self._terms.gathered:
                self._terms.gathered.add(id(metric))
                # A later look runs the step as it will be.
                self._runs.forget_divided()


def _is_log_of(metric: keras.metrics.Metric, log: str) -> bool:
    """Whether a log has the name of a metric, after that of an output, or before that of one of its several results."""
    return any(f"_{part}".endswith(f"_{metric.name}") for part in log.split("."))


def _is_zero(record: dict[str, np.ndarray]) -> bool:
    return not any(np.any(value) for value in record.values())


def variables_of(model: keras.Model) -> list[keras.Variable]:
    """Those that a step of a model may change, each once: its own, and those of its optimizers and metrics.

    Args:
        model: Prepared, built and compiled.
    """
    owners = (*held_optimizers(model), *metrics_of(model))
    found = [*model.variables, *(each for owner in owners for each in owner.variables)]
    return list({id(variable): variable for variable in found}.values())


def optimizers_met(terms: Terms) -> list[keras.optimizers.Optimizer]:
    """Optimizers that a step was seen to use.

    Args:
        terms: What is known of the terms of the step.
    """
    owners = [reference() for reference in terms.owners.values()]
    return [owner for owner in owners if isinstance(owner, keras.optimizers.Optimizer)]
