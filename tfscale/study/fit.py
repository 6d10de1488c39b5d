"""What does a study say: the critical batch, how sure that is, and where which regime begins?"""

from __future__ import annotations

import math
import os
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfscale.errors import StudyError
from tfscale.study.law import LawFit, fit_law
from tfscale.study.result import TrialResult, read_results

# Above it the points do not follow the law, and there are no regimes.
MOST_RMS = 0.15
_EXPONENTS = (0.6, 2.0)
# So many times the critical batch the largest is to be.
WIDER = 2.0
# The outer part of a range, at which the best point is at its edge.
EDGE = 1 / 8
_FEW_TRIALS = 8


@dataclass(frozen=True)
class Study:
    """What a study has found.

    Args:
        law: The fit to the best steps at each batch.
        interval: Of 95 % for the critical batch: what the distances from the law say, and what other seeds would have.
        best: By batch the best steps: of each point the median over its seeds, and of these the least.
        best_parameters: By batch those of that point.
        cautions: What to know before the number is used; empty where there is nothing.
    """

    law: LawFit
    interval: tuple[float, float]
    best: Mapping[int, float]
    best_parameters: Mapping[int, Mapping[str, float]]
    cautions: tuple[str, ...]

    @property
    def b_crit(self) -> float:
        """The critical batch, in examples."""
        return self.law.b_crit

    @property
    def s_min(self) -> float:
        """Steps that no batch can go below."""
        return self.law.s_min

    @property
    def e_min(self) -> float:
        """Examples that no batch can go below."""
        return self.law.e_min

    @property
    def rms(self) -> float:
        """How far log S is from the law, on the whole."""
        return self.law.rms

    @property
    def is_bracketed(self) -> bool:
        """Whether the batches that reached the target go from the critical one or below to twice that or beyond.

        A law fitted to smaller batches alone foretells the steps beyond them badly.
        """
        return min(self.best) <= self.b_crit <= max(self.best) / WIDER

    @property
    def regimes(self) -> Mapping[str, tuple[float, float]] | None:
        """By formula, from and to which batch; None where the points do not follow the law.

        Up to B_crit / 4 it takes at most a quarter more examples than the least; from 4 B_crit on at most a quarter
        of the steps is left to be saved. `"20 % overhead"` ends at 0.2 B_crit.
        """
        if self.rms > MOST_RMS:
            return None
        quarter, four = self.b_crit / 4, 4 * self.b_crit
        return {
            "perfect": (0.0, quarter),
            "diminishing": (quarter, four),
            "exhausted": (four, math.inf),
            "20 % overhead": (0.0, 0.2 * self.b_crit),
        }

    def __str__(self) -> str:
        low, high = self.interval
        end = "no upper end" if math.isinf(high) else f"to {high:.3g}"
        most = max(self.best)
        value = f"{self.b_crit:.3g} examples (95 %: {low:.3g} {end})"
        if self.b_crit > most:
            value = f"at least {most} examples, the largest batch that reached the target; the law has {value}"
        lines = [f"critical batch: {value}"]
        if self.regimes is not None:
            lines[0] += (
                f"; batches up to {self.b_crit / 4:.3g} examples waste next to nothing, beyond {4 * self.b_crit:.3g} "
                "more examples a step save hardly any steps"
            )
        fitted = f"S_min {self.s_min:.3g} steps, E_min {self.e_min:.3g} examples, rms of log steps {self.rms:.2f}"
        if self.regimes is not None:
            fitted += f"; up to {0.2 * self.b_crit:.3g} examples a step at most 20 % more examples are taken than E_min"
        return "\n".join([*lines, fitted, *(f"caution: {each}" for each in self.cautions)])


def fit(results: str | os.PathLike[str] | Iterable[TrialResult], *, seed: int = 0, draws: int = 200) -> Study:
    """Fits the law to a study.

    Args:
        results: A table, a directory, or what was read of one.
        seed: Of the draws for the interval.
        draws: How many; 0 for none.

    Raises:
        StudyError: When fewer than three batches have reached the target.

    Example:
        >>> from tfscale.study import Trial, TrialResult, fit
        >>> rows = [
        ...     TrialResult(Trial(batch, point, 0, {"rate": rate}), 10 * rate * (1 + 96 / batch), "reached")
        ...     for batch in (16, 64, 256, 1024)
        ...     for point, rate in enumerate((1.0, 2.0))
        ... ]
        >>> found = fit(rows)
        >>> round(found.b_crit), found.is_bracketed, found.best_parameters[16]
        (96, True, {'rate': 1.0})
    """
    rows = list(read_results(results) if isinstance(results, str | os.PathLike) else results)
    by_batch = _by_batch(rows)
    best = {batch: steps for batch, (steps, _) in _best(by_batch).items()}
    if len(best) < 3:
        raise StudyError(
            "A study needs three batches at which the target was reached.\n"
            f"Received: {sorted(best)} of {sorted(by_batch)}. Take a target that is easier to reach, a longer "
            "budget, or more trials."
        )
    law = fit_law(list(best), list(best.values()))
    low, high = law.low, law.high
    drawn = _draws(by_batch, random.Random(seed), draws)
    if drawn:
        low, high = min(low, drawn[len(drawn) // 40]), max(high, drawn[-1 - len(drawn) // 40])
    parameters = {batch: by_batch[batch][point][0].trial.parameters for batch, (_, point) in _best(by_batch).items()}
    found = Study(law, (low, high), best, parameters, ())
    return Study(law, (low, high), best, parameters, tuple(_cautions(found, by_batch)))


_Points = Mapping[int, Mapping[int, Sequence[TrialResult]]]


def _by_batch(rows: Iterable[TrialResult]) -> _Points:
    found: Any = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row.trial.batch][row.trial.point].append(row)
    return {batch: dict(found[batch]) for batch in sorted(found)}


def _best(by_batch: _Points) -> dict[int, tuple[float, int]]:
    """By batch the least of the points' medians, and its point: of those that were tried with the most seeds.

    One of many points with a single seed is the best by luck.
    """
    best = {}
    for batch, points in by_batch.items():
        most = max(map(len, points.values()))
        settled = {point: rows for point, rows in points.items() if len(rows) == most}
        medians = [(statistics.median_high(row.steps for row in rows), point) for point, rows in settled.items()]
        steps, point = min(medians)
        if math.isfinite(steps):
            best[batch] = (steps, point)
    return best


def _draws(by_batch: _Points, chance: random.Random, draws: int) -> list[float]:
    """Critical batches of studies with other seeds, in order; none where no point has several."""
    if all(len(rows) < 2 for points in by_batch.values() for rows in points.values()):
        return []
    found = []
    for _ in range(draws):
        drawn = {
            batch: {point: chance.choices(rows, k=len(rows)) for point, rows in points.items()}
            for batch, points in by_batch.items()
        }
        best = _best(drawn)
        if len(best) >= 3:
            found.append(fit_law(list(best), [steps for steps, _ in best.values()], with_exponent=False).b_crit)
    return sorted(found)


def _cautions(study: Study, by_batch: _Points) -> Iterable[str]:
    least, most = min(study.best), max(study.best)
    if study.b_crit > most:
        yield (
            f"the critical batch is not bracketed: it is at least {most}, the largest batch that reached the target, "
            f"and {study.b_crit:.3g} is a guess"
        )
    elif study.b_crit > most / WIDER:
        yield (
            f"the critical batch is not bracketed: {most}, the largest batch that reached the target, is less than "
            f"twice {study.b_crit:.3g}: it may be as large as {most}, or larger"
        )
    elif study.b_crit < least:
        yield (
            f"the critical batch is not bracketed: it is below {least}, the smallest batch that reached the target, "
            f"and {study.b_crit:.3g} is a guess"
        )
    if study.rms > MOST_RMS:
        yield f"the points do not follow the law (rms {study.rms:.2f}): no regimes are told apart"
    exponent = study.law.exponent
    if exponent is not None and not _EXPONENTS[0] <= exponent <= _EXPONENTS[1]:
        yield f"an exponent of {exponent:.2f} would fit better than 1"
    missing = sorted(set(by_batch) - set(study.best))
    if missing:
        yield f"the target was not reached at {', '.join(map(str, missing))}"
    yield from _at_the_edge(study, by_batch)
    counts = {len(points) for points in by_batch.values()}
    if min(counts) < _FEW_TRIALS:
        yield f"{min(counts)} trials a batch: fewer than {_FEW_TRIALS} make the critical batch too large"
    if len(counts) > 1:
        yield "the batches have unequal numbers of trials"


def _at_the_edge(study: Study, by_batch: _Points) -> Iterable[str]:
    """What is said where the first parameter of the best point is at an end of what was tried at its batch."""
    found: dict[str, list[int]] = {"the least that was tried": [], "the largest that was tried": []}
    least, largest = found.values()
    name = next((name for best in study.best_parameters.values() for name in best), None)
    for batch, best in study.best_parameters.items():
        tried = [rows[0].trial.parameters.get(name or "", 0.0) for rows in by_batch[batch].values()]
        if min(tried) <= 0 or min(tried) == max(tried):
            continue
        low, high = math.log(min(tried)), math.log(max(tried))
        place = (math.log(best[name or ""]) - low) / (high - low)
        if place <= EDGE:
            least.append(batch)
        elif place >= 1 - EDGE:
            largest.append(batch)
    told = [f"{', '.join(map(str, batches))} ({which})" for which, batches in found.items() if batches]
    if told:
        yield f"the best {name} is at the edge of its range at {' and '.join(told)}: the steps may be fewer beyond"
