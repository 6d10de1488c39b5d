"""What has one run of a step left?"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tfscale.exact.terms import Term

# Kinds of terms that are met once in a step, however its rows are run.
_OF_WHOLE_STEP = ("gradients", "log")


@dataclasses.dataclass
class Outcome:
    """What one run of the step has left."""

    logs: dict[str, np.ndarray]
    if_mean: dict[Term, dict[str, np.ndarray]]
    """By term and name, as of the global batch, where the term is a mean over its examples."""
    if_sum: dict[Term, dict[str, np.ndarray]]
    """The same where it is a sum."""
    state: dict[str, np.ndarray]
    """Variables by name."""
    apart: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Of variables that the replicas no longer have alike, the value that is farthest from the first replica's."""
    kept: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """What lists and the like hold that the step keeps in Python."""

    def scale(self) -> float:
        """The size of the largest gradient, or the root of the loss where there is none."""
        sizes: dict[str, float] = {"gradients": 0.0, "loss": 0.0}
        for term, record in self.if_mean.items():
            if term.kind in sizes:
                values = [float(np.max(np.abs(value), initial=0.0)) for value in record.values()]
                sizes[term.kind] = max([sizes[term.kind], *values])
        return sizes["gradients"] or sizes["loss"] ** 0.5

    def of_whole_step(self) -> Outcome:
        """Without what is met in a part of the rows."""
        if_mean, if_sum = (
            {term: record for term, record in each.items() if term.kind in _OF_WHOLE_STEP}
            for each in (self.if_mean, self.if_sum)
        )
        return dataclasses.replace(self, if_mean=if_mean, if_sum=if_sum)

    def is_finite(self) -> bool:
        """Whether all that the step computed of its rows are numbers."""
        values = (value for record in self.if_mean.values() for value in record.values())
        # A prediction may be a text.
        return all(np.all(np.isfinite(value)) for value in values if value.dtype.kind not in "OSU")

    def is_without_gradient(self) -> bool:
        """Whether an optimizer was given zeros only."""
        given = [record for term, record in self.if_mean.items() if term.kind == "gradients"]
        return bool(given) and not any(np.any(value) for record in given for value in record.values())


def outcome_of(values: list[np.ndarray], layout: Any, state: dict[str, np.ndarray]) -> Outcome:
    """What a traced step has returned, and left.

    Args:
        values: Logs, then of each term its values as those of a mean and as those of a sum.
        layout: Names of the logs; terms with the names of their values.
        state: Variables by name.
    """
    names, records = layout
    left = iter(values)
    logs = {name: next(left) for name in names}
    if_mean, if_sum = {}, {}
    for term, labels in records:
        if_mean[term] = {label: next(left) for label in labels}
        if_sum[term] = {label: next(left) for label in labels}
    return Outcome(logs, if_mean, if_sum, state)
