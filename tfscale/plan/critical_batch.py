"""Up to which batch do more examples a step pay, and how sure is that?

Along one run at batch b, with x_t the noise scale at step t: `S(B) = sum_t w_t (1 + c x_t / B)` with
`w_t = 1 / (1 + c x_t / b)`. So `S(B) = S_min (1 + B_crit / B)` with `B_crit = sum(w c x) / sum(w)`: the mean over the
steps that count, and not the plain mean, which is 1.1 to 5 times that. c is 0.13 to 3.3 in published and own pairs, 20
in one: noise alone does not tell it. It is taken for 1, in a band from a quarter to four times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfscale.errors import MeasureError, StudyError
from tfscale.measure import StepMoments, TraceRow, estimate_noise_scale
from tfscale.study import Study

FROM_NOISE = 4.0
FROM_BRANCHES = 2.0
_WINDOW = 100
_LEAST_ROWS = 20


@dataclass(frozen=True)
class CriticalBatch:
    """A critical batch and its band, in examples.

    Args:
        low: Lower end of the band.
        value: What is most likely; None where noise alone does not tell.
        high: Upper end; infinite where there is none.
        source: Where it comes from: `"noise"`, `"branches"`, `"study"` or `"given"`.
        note: What it holds for, in words.
        cautions: What to know before it is used; empty where there is nothing.
    """

    low: float
    value: float | None
    high: float
    source: str
    note: str
    cautions: tuple[str, ...] = ()


def from_noise(rows: Sequence[TraceRow]) -> CriticalBatch:
    """Returns the critical batch that the noise of one run foretells, with c = 1.

    The band goes from a quarter of the lower to four times the upper end of what the steps themselves tell.

    Args:
        rows: Of a trace.

    Raises:
        MeasureError: For fewer than 20 rows, or a gradient that is nothing but noise.

    Example:
        >>> from tfscale.measure import StepMoments, TraceRow
        >>> from tfscale.plan import from_noise
        >>> steps = [StepMoments(100.0 + (-1) ** i, 2.0, examples=32, shards=4) for i in range(40)]
        >>> found = from_noise([TraceRow(i + 1, 32.0 * i, each, None, 0.1 * i) for i, each in enumerate(steps)])
        >>> round(found.low, 1), round(found.value, 1), round(found.high, 1)
        (12.5, 50.0, 200.0)
    """
    whole = estimate_noise_scale([row.moments for row in rows])
    if whole is None:
        raise MeasureError(
            f"A trace must have {_LEAST_ROWS} measured steps or more.\n"
            f"Received: {len(rows)}. Train for longer, or measure more of the steps: `NoiseScale(every=1)`."
        )
    value = _law_weighted([row.moments for row in rows])
    if whole.value is None or value is None or whole.value <= 0:
        if whole.low <= 0:
            raise MeasureError(
                "Noise foretells a critical batch where the gradient is told from its noise.\n"
                f"Received: {len(rows)} steps in which it is not. Measure more steps, or at a larger batch."
            )
        return CriticalBatch(whole.low / FROM_NOISE, None, math.inf, "noise", "too few steps for an upper end")
    low = value * min(1.0, whole.low / whole.value) / FROM_NOISE
    high = math.inf if whole.high is None else value * max(1.0, whole.high / whole.value) * FROM_NOISE
    note = "from noise alone: which multiple of it the critical batch is differs by model, so a band and no number"
    return CriticalBatch(low, value, high, "noise", note)


def _law_weighted(steps: Sequence[StepMoments]) -> float | None:
    """`sum(w x) / sum(w)` over windows, each of which counts by its steps; None where no step counts."""
    count = max(1, len(steps) // _WINDOW)
    edges = [len(steps) * place // count for place in range(count + 1)]
    tops, weights = [], []
    for first, last in itertools.pairwise(edges):
        window = steps[first:last]
        batch = math.fsum(step.examples for step in window) / len(window)
        noise = max(0.0, math.fsum(step.variance for step in window))
        # Where the gradient is not told from 0, x is taken for infinite: w is 0 then, and w x is b.
        signal = max(0.0, math.fsum(step.squared_mean for step in window))
        total = signal + noise / batch
        if total > 0:
            weights.append(len(window) * signal / total)
            tops.append(len(window) * noise / total)
    weight = math.fsum(weights)
    return math.fsum(tops) / weight if weight > 0 else None


def from_study(study: Study, goal: str) -> CriticalBatch:
    """Returns the critical batch of a study.

    Args:
        study: As `tfscale.study.fit` returns it.
        goal: Its target, in words.

    Raises:
        StudyError: When its batches do not contain it and twice that: then it is a guess.
    """
    if not study.is_bracketed:
        raise StudyError(
            "A study foretells steps when the batches that were tried contain the critical one, and twice that.\n"
            f"Received: a critical batch of {study.b_crit:.3g}, from batches {min(study.best)} to {max(study.best)}. "
            "Go on with the study in its directory, with more --batches; where they do not reach the target, make one "
            "with a target that they do."
        )
    low, high = study.interval
    note = f"a study to {goal}" if goal else "a study"
    return CriticalBatch(min(low, study.b_crit), study.b_crit, max(high, study.b_crit), "study", note, study.cautions)
