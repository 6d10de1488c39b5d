"""What does a study train?"""

from __future__ import annotations

import dataclasses

from tfscale.parity.target import Target
from tfscale.study.goal import Goal


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What a study trains.

    Args:
        build: Returns the compiled model.
        data: Returns the examples.
        goal: The target.
        budget_examples: That any trial may take.
        micro_batch: Most rows of one pass; None for all.
    """

    build: Target
    data: Target
    goal: Goal
    budget_examples: int
    micro_batch: int | None = None
