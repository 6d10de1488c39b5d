"""Which trials come next, given those that have ended?

A function of the settings and of the results alone: a study that was killed goes on where it was.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfscale.errors import StudyError
from tfscale.study.fit import EDGE, fit
from tfscale.study.goal import next_evaluation
from tfscale.study.points import MOST_DIMENSIONS, halton_points, spread_evenly
from tfscale.study.result import BUDGET, Trial, TrialResult

# Powers of two from the least rate that is tried to the largest.
_OCTAVES = 7.0
_MOST_WIDENED = 2
_MOST_EXTENDED = 4
# So much further behind the best at its batch a trial is ended.
BEHIND = 2.0


@dataclass(frozen=True)
class Parameter:
    """What is searched.

    Args:
        name: As `build` names it.
        centre: The recipe's value.
        kind: `"rate"` (a factor 2^7 around the centre, which follows the batch by the rule), `"one minus"` (1 - x over
            a factor 10 on both sides: momentum, betas) or `"factor"` (over a factor 10 on both sides).
    """

    name: str
    centre: float
    kind: str

    def value(self, place: float, growth: float) -> float:
        """The value at a place of the range, 0 to 1, or beyond where it was widened.

        Args:
            place: Where.
            growth: By what the rule multiplies a rate at this batch.
        """
        if self.kind == "rate":
            return self.centre * growth * 2 ** (_OCTAVES * (place - 0.5))
        factor = float(10 ** (2 * (place - 0.5)))
        return 1 - min(1.0, (1 - self.centre) * factor) if self.kind == "one minus" else self.centre * factor


@dataclass(frozen=True)
class Settings:
    """What a study is to try.

    Args:
        batches: To begin with, in examples.
        trials: Points a batch.
        seeds: With how many seeds the better half of the points is tried.
        parameters: What is searched; the first is the rate.
        reference_batch: At which the parameters' centres hold.
        rule: By what the centre of the rate follows the batch: `"linear"`, `"sqrt"` or `"none"`.
        most_batch: Beyond which the study is not extended: the examples that there are.
        first_trials: Points a batch with which the study was begun, where there were fewer; None for as many.
    """

    batches: tuple[int, ...]
    trials: int
    seeds: int
    parameters: tuple[Parameter, ...]
    reference_batch: int
    rule: str
    most_batch: int
    first_trials: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.parameters) <= MOST_DIMENSIONS:
            raise StudyError(
                f"A study searches 1 to {MOST_DIMENSIONS} parameters.\n"
                f"Received: {[each.name for each in self.parameters]}. Let `build` take a `rate`."
            )
        if len(set(self.batches)) < 3 or min(self.batches) < 1 or max(self.batches) > self.most_batch:
            raise StudyError(
                f"A study needs three batches or more, from 1 to the {self.most_batch} examples that there are.\n"
                f"Received: batches={list(self.batches)}. Give a wider range, such as 16..1024."
            )

    def growth(self, batch: int) -> float:
        """By what the rule multiplies a rate."""
        ratio = batch / self.reference_batch
        return {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[self.rule]

    def recipe(self) -> Trial:
        """A trial with the recipe's own values, at the batch where they hold."""
        return Trial(self.reference_batch, 0, 0, {each.name: each.centre for each in self.parameters})


def parse_batches(text: str) -> tuple[int, ...]:
    """Reads "16..1024", a factor 2 apart, or "16,64,256".

    Raises:
        StudyError: When it is neither.

    Example:
        >>> from tfscale.study.schedule import parse_batches
        >>> parse_batches("16..100"), parse_batches("8,32")
        ((16, 32, 64, 100), (8, 32))
    """
    first, dots, last = text.partition("..")
    parts = [first, last] if dots else text.split(",")
    if not all(part.isascii() and part.isdecimal() and int(part) > 0 for part in parts):
        raise StudyError(f"Batches must be as 16..1024 or 16,64,256.\nReceived: {text!r}.")
    if not dots:
        return tuple(sorted({int(part) for part in parts}))
    least, most = int(first), int(last)
    doubled = [least * 2**power for power in range(max(1, (most // least).bit_length())) if least * 2**power < most]
    return (*doubled, most)


def next_trials(settings: Settings, results: Iterable[TrialResult], *, budget_examples: float = 0) -> list[Trial]:
    """Returns the trials of the next round; none when the study has ended.

    First all points at all batches, large batches first: they are cheap in steps. Then the better half of the points
    with more seeds; then wider ranges, where the best rate is at the edge of its own, for all batches alike; then more
    batches, until those that reach the target go to twice the critical one, or beyond. What was tried with fewer
    batches, points or seeds is a part of it.

    Args:
        settings: Of the study.
        results: Of the trials that have ended.
        budget_examples: Trials that were ended by a smaller budget are run again.
    """
    rows = list(results)
    done = {each.trial.name: each for each in rows if not is_cut_short(each, budget_examples)}
    batches = sorted({*settings.batches, *(each.trial.batch for each in rows)})
    points = _Points(settings, rows)
    if left := _left(settings, batches, points.tried, done):
        return left
    side = _edge(settings, batches, points.tried, done)
    if side and points.times[side] < _MOST_WIDENED:
        return _left(settings, batches, points.widened(side), done)
    more = _one_more(settings, batches, done)
    if more is None or len(set(batches) - set(settings.batches)) == _MOST_EXTENDED:
        return []
    return _left(settings, [*batches, more], points.tried, done)


def least_steps(results: Iterable[TrialResult], batch: int) -> float:
    """The least of a batch so far; infinite where there are none."""
    return min((each.steps for each in results if each.trial.batch == batch), default=math.inf)


_Done = Mapping[str, TrialResult]
# By the numbers of points.
_Places = dict[int, list[float]]


def is_cut_short(result: TrialResult, budget_examples: float) -> bool:
    """Whether a trial was ended by a budget, and this one lets it get to one more evaluation.

    Args:
        result: Of the trial.
        budget_examples: Most examples of a trial.
    """
    last = result.evaluations[-1][0] if result.evaluations else 0
    return result.reason == BUDGET and next_evaluation(last) <= budget_examples // result.trial.batch


class _Points:
    """Where the points lie, by their numbers, in the unit cube and beside it.

    A point keeps the number that it has: it is found again by its values. New ones get the least numbers that are free.

    Args:
        settings: Of the study.
        results: Of the trials that have ended.
    """

    def __init__(self, settings: Settings, results: Iterable[TrialResult]):
        self._settings = settings
        self._known = {(each.trial.batch, _values(each.trial)): each.trial.point for each in results}
        self._batches = sorted({batch for batch, _ in self._known})
        taken = set(self._known.values())
        self._free = (number for number in itertools.count() if number not in taken)
        self.times = {-1: 0, 1: 0}
        """How often the range was widened on each side."""
        self.tried = self._numbered(_places(settings, 0, 0))
        for side, times in itertools.product(self.times, range(1, _MOST_WIDENED + 1)):
            places = _places(settings, side, times)
            if any(self._number(place) is not None for place in places):
                self.times[side] = times
                self.tried |= self._numbered(places)

    def widened(self, side: int) -> _Places:
        """With those of a range that is wider on one side."""
        return self.tried | self._numbered(_places(self._settings, side, self.times[side] + 1))

    def _numbered(self, places: Iterable[list[float]]) -> _Places:
        numbers = ((self._number(place), place) for place in places)
        return {next(self._free) if number is None else number: place for number, place in numbers}

    def _number(self, place: Sequence[float]) -> int | None:
        keys = ((batch, _values(_trial(self._settings, batch, 0, place, 0))) for batch in self._batches)
        return next((self._known[key] for key in keys if key in self._known), None)


def _values(trial: Trial) -> tuple[str, ...]:
    # The last digits of a power differ by machine.
    return tuple(f"{name}={value:.9g}" for name, value in sorted(trial.parameters.items()))


def _places(settings: Settings, side: int, times: int) -> list[list[float]]:
    """Those of the range itself, or of a part half as wide beyond it, or beyond what was widened before."""
    dimensions = len(settings.parameters)
    if dimensions == 1:
        places = [[place] for place in spread_evenly(settings.first_trials or settings.trials, settings.trials)]
    else:
        places = halton_points(settings.trials, dimensions, seed=2 * times - (side > 0))
    if side == 0:
        return places
    begin = (1 + times) / 2 if side > 0 else -times / 2
    return [[begin + place[0] / 2, *place[1:]] for place in places]


def _trial(settings: Settings, batch: int, point: int, place: Sequence[float], seed: int) -> Trial:
    growth = settings.growth(batch)
    pairs = zip(settings.parameters, place, strict=True)
    return Trial(batch, point, seed, {each.name: each.value(where, growth) for each, where in pairs})


def _left(settings: Settings, batches: Iterable[int], points: _Places, done: _Done) -> list[Trial]:
    ordered = sorted(batches, reverse=True)
    first = [_trial(settings, batch, point, place, 0) for batch in ordered for point, place in points.items()]
    left = [each for each in first if each.name not in done]
    if left:
        return left
    again = []
    for batch in ordered:
        own = [_trial(settings, batch, point, place, 0) for point, place in points.items()]
        own.sort(key=lambda each: (done[each.name].steps, each.point))
        better = [each for each in own[: max(1, settings.trials // 2)] if math.isfinite(done[each.name].steps)]
        again += [
            _trial(settings, batch, each.point, points[each.point], seed)
            for each in better
            for seed in range(1, settings.seeds)
        ]
    return [each for each in again if each.name not in done]


def _edge(settings: Settings, batches: Iterable[int], points: _Places, done: _Done) -> int:
    """On which side most of the best rates are at the edge: -1, 0 or 1."""
    rates = [place[0] for place in points.values()]
    low, high = min(rates), max(rates)
    width = EDGE * max(high - low, 1e-9)
    sides = []
    for batch in batches:
        names = [(done[_trial(settings, batch, p, place, 0).name].steps, place[0]) for p, place in points.items()]
        steps, rate = min(names)
        sides.append(0 if math.isinf(steps) else -1 if rate <= low + width else 1 if rate >= high - width else 0)
    return max((-1, 0, 1), key=lambda side: (sides.count(side) > 0 and side != 0, sides.count(side)))


def _one_more(settings: Settings, batches: Sequence[int], done: _Done) -> int | None:
    """The batch that is still missing for the critical one to lie among them; None where it does, or cannot."""
    try:
        found = fit(done.values(), draws=0)
    except StudyError:
        return None
    if found.is_bracketed:
        return None
    if found.b_crit < min(found.best):
        # Where smaller ones did not reach the target, still smaller ones will not.
        least = min(batches)
        return None if least == 1 or least < min(found.best) else max(1, least // 2)
    most = max(batches)
    more = min(2 * most, settings.most_batch)
    return None if more in batches or most > max(found.best) else more
