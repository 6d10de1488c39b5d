"""Is it by chance, or by rounding, that a divided step differs from the reference?

By chance, where the reference differs from itself. By rounding, where two things hold: rows and weights that are one
rounding away change the reference about as much, and they change the difference itself. What is wrong because of the
replicas is as wrong one rounding away. The rows alone would not do: nothing of them reaches the generator of a GAN.
Numbers are not all changed alike: what normalizes them would make the same of them, and leave on its side of an edge
what lies beside one.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from tfscale.exact.randomness import seed_generators
from tfscale.exact.terms import Term, Terms
from tfscale.gradients.updaters import held_optimizers
from tfscale.replicas.agreement import any_of_workers
from tfscale.training.check.check_rows import CheckRows
from tfscale.training.check.first_step import TwoRuns
from tfscale.training.check.outcome import Outcome
from tfscale.training.check.step_differences import (
    Difference,
    log_differences,
    state_differences,
    term_differences,
    tolerance_of,
)

_log = logging.getLogger(__name__)
# So much more than what a rounding, or chance, makes of the reference is still that.
_ALIKE, _ALIKE_AT_RANDOM = 30, 100
# As often the reference is run to see whether it is by chance that it differs.
_RUNS_AT_RANDOM = 3
# Some of the roundings in which inputs come, by bytes: 2**-21 is one that no half precision can show.
_ROUNDINGS = {2: 2**-21, 4: 2**-21, 8: 2**-50}
# One that it shows.
_SHOWN_ROUNDINGS = {2: 2**-8, 4: 2**-21, 8: 2**-50}
# A difference that changes by less of itself is steady. Of one drawn at random one in ten is, and one in 300 thrice: of
# the hundred weights of a deep model one would be.
_STEADY, _TIMES = 1 / 3, (1, -1, 2, -2, 3)
# Up to so many tolerances may be a steady rounding: a sum of as many numbers as a picture has, which nearly cancel, is
# off by as much with any weights.
_SUMMED = 3

Compare = Callable[[Outcome, Outcome, dict[str, np.ndarray]], list[Difference]]
_Key = tuple[str, str]
_Arrays = Mapping[str, np.ndarray]
_Records = Mapping[Term, _Arrays]


class Chance:
    """Tells what chance and rounding make of a step from what is wrong with it.

    Args:
        model: Prepared, built and compiled.
        strategy: Its strategy.
        terms: What is known of the terms of the step.
        runs: Of the step, in both forms.
        bytes_per_number: Of the narrowest floating-point numbers with which the model computes.
        what: The step in words, such as "first step of model 'mlp'".
        is_eager: Whether it is run eagerly.
        tells: What its logs are: `"log"` or `"prediction"`.
    """

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        terms: Terms,
        runs: TwoRuns,
        bytes_per_number: int,
        what: str,
        *,
        is_eager: bool,
        tells: str,
    ):
        self._model, self._strategy = model, strategy
        self._terms, self._runs = terms, runs
        self._bytes_per_number = bytes_per_number
        self._what = what
        self._is_eager, self._tells = is_eager, tells
        self._is_said = False
        self.is_drawn = False
        """Whether the step was found to draw numbers that cannot be held still."""

    def explains(
        self,
        differences: Sequence[Difference],
        rows: CheckRows,
        ours: Outcome,
        reference: Outcome,
        before: dict[str, np.ndarray],
        compare: Compare,
    ) -> bool:
        """Whether the differences are nothing but chance or rounding; then a log line says so.

        Args:
            differences: Larger than rounding is as a rule. Those of all workers.
            rows: On which both forms were run.
            ours: What the divided step left.
            reference: What the step on one replica left.
            before: The state from which both began.
            compare: All differences of an outcome of the divided step from one of the reference.
        """
        # Of several arrays that one optimizer gets, another one may differ most.
        met = _largest_of(differences)
        drawn = self._runs.alone_with_draws(rows.whole)
        if drawn is not None:
            own = {term: (ours.if_sum if term in self._terms.sums else ours.if_mean)[term] for term in ours.if_mean}
            rounding = tolerance_of(self._bytes_per_number)
            for key in made_by_draws(drawn.if_mean, own, reference.if_mean, slots_of(self._model), rounding):
                met.pop(key, None)
        is_drawn = bool(met) and self._makes_as_much(
            self._runs_at_random(rows), met, _ALIKE_AT_RANDOM, reference, before
        )
        if any_of_workers(self._strategy, is_drawn):
            self.is_drawn = True
            if not self._is_eager:
                # What is drawn in a graph is silenced.
                _log.warning("the %s could not be checked: it draws random numbers in a function of Python", self._what)
            return True
        shaken = (rows.shaken(times * _ROUNDINGS[self._bytes_per_number]) for times in _TIMES)
        runs = (self._runs.alone(each.whole, each.shaken_by) for each in shaken)
        # One rounding moves some numbers over an edge, and another one others.
        is_near = self._makes_as_much(runs, met, _ALIKE, reference, before)
        # The divided step is run on all workers or on none.
        is_far = any_of_workers(self._strategy, not is_near)
        if is_far or self._is_steady(met, rows, ours, reference, before, compare):
            return False
        if not self._is_said:
            _log.warning("the %s could not be checked (rounding makes as much)", self._what)
        self._is_said = True
        return True

    def _makes_as_much(
        self,
        runs: Iterable[Outcome],
        met: Mapping[_Key, float],
        alike: float,
        reference: Outcome,
        before: dict[str, np.ndarray],
    ) -> bool:
        """Whether the runs, taken together, differ from the reference as much; no more are made than it takes."""
        least = tolerance_of(self._bytes_per_number) / _ALIKE
        left = {key: max(least, found / alike) for key, found in met.items()}
        for run in runs:
            made = self._differences_of_reference(run, reference, before)
            left = {key: enough for key, enough in left.items() if made.get(key, 0.0) <= enough}
            if not left:
                return True
        return not left

    def _runs_at_random(self, rows: CheckRows) -> Iterator[Outcome]:
        """Runs of the reference that differ where it draws: eagerly what Keras draws is the same in equal ones."""
        for _ in range(_RUNS_AT_RANDOM):
            if self._is_eager:
                for generator in seed_generators(self._strategy, self._model):
                    generator.next()
            yield self._runs.alone(rows.whole)

    def _is_steady(
        self,
        met: Mapping[_Key, float],
        rows: CheckRows,
        ours: Outcome,
        reference: Outcome,
        before: dict[str, np.ndarray],
        compare: Compare,
    ) -> bool:
        """Whether something differs by the same on all rows, with all weights, that are a few roundings away."""
        least = _SUMMED * tolerance_of(self._bytes_per_number)
        steady = {key for key, found in met.items() if found > least}
        for times in _TIMES:
            shaken = rows.shaken(times * _SHOWN_ROUNDINGS[self._bytes_per_number])
            share = shaken.shaken_by
            there = self._runs.divided(shaken.parts, share), self._runs.alone(shaken.whole, share)
            changed = _largest_of(compare(_less_the_difference(ours, *there), reference, before))
            steady = {key for key in steady if changed.get(key, np.inf) < _STEADY * met[key]}
            # The divided step is run on all workers or on none.
            if not any_of_workers(self._strategy, bool(steady)):
                return False
        return True

    def _differences_of_reference(
        self, control: Outcome, reference: Outcome, before: dict[str, np.ndarray]
    ) -> dict[_Key, float]:
        rows = list(term_differences(control.if_mean, reference.if_mean, self._bytes_per_number).values())
        rows += log_differences(control, reference, self._tells)
        rows += state_differences(control, reference, before, slots_of(self._model), set(), self._bytes_per_number)
        return {(row.kind, row.label): row.relative for row in rows}


def slots_of(model: keras.Model) -> list[str]:
    """Names of the variables of a model's optimizers."""
    return [each.path for optimizer in held_optimizers(model) for each in optimizer.variables]


def made_by_draws(
    drawn: _Records, ours: _Records, reference: _Records, slots: Iterable[str], rounding: float
) -> set[_Key]:
    """Kinds and labels of what is nothing but rounding while draws are held still.

    Noise that is the same for every row is normalized to zero, which may be so to the bit: then a rounding of the rows
    makes nothing, and a sum in another order makes all.

    Args:
        drawn: What one replica made of numbers that it drew, by term.
        ours: What the divided step made while they were held still.
        reference: What one replica made of the same.
        slots: Names of the variables of optimizers.
        rounding: This part of what one replica made of what it drew is.
    """
    found: set[_Key] = set()
    updated: set[str] = set()
    for term, record in reference.items():
        held_still = max(_size(record), _size(ours.get(term, {})))
        if held_still <= rounding * _size(drawn.get(term, {})):
            found.add((term.kind, term.label))
            updated |= record.keys() if term.kind == "gradients" else set()
    # What rounding leaves of gradients is in weights, too; an adaptive optimizer makes whole steps of it.
    names = [*updated, *(name for name in slots if _is_slot_of(name, updated))]
    return found | {("weight", f"weight {name!r}") for name in names}


def _is_slot_of(slot: str, variables: Iterable[str]) -> bool:
    """Whether an optimizer keeps a variable, such as `"adam/dense_kernel_momentum"`, for some of these."""
    return any(f"/{name.replace('/', '_')}_" in slot for name in variables)


def _size(record: _Arrays) -> float:
    return max((float(np.max(np.abs(array), initial=0.0)) for array in record.values()), default=0.0)


def _largest_of(differences: Iterable[Difference]) -> dict[_Key, float]:
    found: dict[_Key, float] = {}
    for each in differences:
        found[each.kind, each.label] = max(found.get((each.kind, each.label), 0.0), each.relative)
    return found


def _less_the_difference(ours: Outcome, ours_there: Outcome, reference_there: Outcome) -> Outcome:
    """What the divided step left, less the difference from the reference that it has on other rows."""

    def of(own: _Arrays, there: _Arrays, expected: _Arrays) -> dict[str, np.ndarray]:
        return {name: _less(array, there.get(name), expected.get(name)) for name, array in own.items()}

    def of_terms(own: _Records, there: _Records, expected: _Records) -> dict[Term, dict[str, np.ndarray]]:
        return {term: of(own[term], there.get(term, {}), expected.get(term, {})) for term in own}

    return dataclasses.replace(
        ours,
        logs=of(ours.logs, ours_there.logs, reference_there.logs),
        if_mean=of_terms(ours.if_mean, ours_there.if_mean, reference_there.if_mean),
        # As a sum it is compared with the reference as a mean.
        if_sum=of_terms(ours.if_sum, ours_there.if_sum, reference_there.if_mean),
        state=of(ours.state, ours_there.state, reference_there.state),
        apart=of(ours.apart, ours_there.apart, reference_there.state),
    )


def _less(own: np.ndarray, there: np.ndarray | None, expected: np.ndarray | None) -> np.ndarray:
    """What has no difference to be taken off is as it is."""
    if there is None or expected is None or not own.shape == there.shape == expected.shape:
        return own
    if not np.issubdtype(own.dtype, np.floating):
        return own
    with np.errstate(invalid="ignore"):
        return own - (there - expected)
