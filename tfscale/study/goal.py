"""When is a target reached?"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tfscale.errors import StudyError

# In these names less is better, unless the target says otherwise.
_LESS = ("loss", "error", "mae", "mse", "perplexity", "divergence")


@dataclass(frozen=True)
class Goal:
    """A metric and the value that it has to reach.

    Args:
        metric: As Keras logs it: `loss`, `val_accuracy`.
        value: To be reached.
        is_least: Whether less is better.
    """

    metric: str
    value: float
    is_least: bool

    def is_reached(self, value: float) -> bool:
        """Whether a value is as good."""
        return value <= self.value if self.is_least else value >= self.value

    def __str__(self) -> str:
        return f"{self.metric} {'<=' if self.is_least else '>='} {self.value:g}"


def parse_goal(text: str) -> Goal:
    """Reads "val_accuracy=0.95", "loss<0.1" or "score>3".

    Raises:
        StudyError: When it is none.

    Example:
        >>> from tfscale.study.goal import parse_goal
        >>> str(parse_goal("val_accuracy=0.95")), str(parse_goal("loss=0.1"))
        ('val_accuracy >= 0.95', 'loss <= 0.1')
    """
    found = re.fullmatch(r"\s*(\w+)\s*([<>]?)=?\s*([-+.\deE]+)\s*", text)
    try:
        value = float(found[3]) if found else math.nan
    except ValueError:
        value = math.nan
    if found is None or not math.isfinite(value):
        raise StudyError(f"A target must be as val_accuracy=0.95 or loss<0.1.\nReceived: {text!r}.")
    is_least = found[2] == "<" if found[2] else any(name in found[1].lower() for name in _LESS)
    return Goal(found[1], value, is_least)


def steps_to_goal(evaluations: Sequence[tuple[int, float]], goal: Goal) -> float | None:
    """Returns the steps to the first of two evaluations in a row at the target; None where there are no two.

    Between it and the evaluation before, the logarithm of the metric is taken for straight.

    Args:
        evaluations: Pairs of a step and the metric, in order.
        goal: The target.

    Example:
        >>> from tfscale.study.goal import parse_goal, steps_to_goal
        >>> steps_to_goal([(10, 0.4), (20, 0.1), (30, 0.1)], parse_goal("loss=0.2"))
        15.0
    """
    for place in range(len(evaluations) - 1):
        (step, value), (_, following) = evaluations[place : place + 2]
        if not (goal.is_reached(value) and goal.is_reached(following)):
            continue
        if place == 0:
            return float(step)
        before_step, before = evaluations[place - 1]
        return before_step + (step - before_step) * _part(before, value, goal.value)
    return None


def _part(before: float, after: float, target: float) -> float:
    if before == after or not all(map(math.isfinite, (before, after))):
        return 1.0
    if min(before, after, target) > 0:
        before, after, target = (math.log(each) for each in (before, after, target))
    return min(1.0, max(0.0, (before - target) / (before - after)))


def next_evaluation(step: int) -> int:
    """The step of the next evaluation: a fortieth of the steps so far, and one at least.

    Example:
        >>> from tfscale.study.goal import next_evaluation
        >>> next_evaluation(0), next_evaluation(30), next_evaluation(400)
        (1, 31, 410)
    """
    return step + max(1, step // 40)
