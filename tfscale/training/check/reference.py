"""What does a step make of all rows on one replica, at a loss scale at which nothing of it overflows?

At a `LossScaleOptimizer`'s own scale the first steps overflow, to find the largest scale that does not: such a step is
skipped, and shows nothing. Where float16 just holds a sum over all rows, that of a part of them may not fit, or the
other way round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.gradients.updaters import held_optimizers
from tfscale.replicas.agreement import any_of_workers
from tfscale.training.check.check_rows import CheckRows
from tfscale.training.check.first_step import TwoRuns
from tfscale.training.check.no_reference import agreeing_on_reference
from tfscale.training.check.outcome import Outcome
from tfscale.training.step.state import State, value_of

# A 64th of what float16 holds: as much larger a part of a sum may be than the sum.
_LARGEST = 1024.0
_LOWER = 16.0


def run_reference(
    model: keras.Model, strategy: tf.distribute.Strategy, runs: TwoRuns, state: State, rows: CheckRows
) -> tuple[Outcome, dict[str, np.ndarray]]:
    """Runs the step on one replica, by every worker; lowers the loss scale before, if there is one and it has to be.

    Args:
        model: Whose step it is.
        strategy: Its strategy.
        runs: The step.
        state: Of the model; to be put back by the caller.
        rows: To run it on.

    Returns:
        What it made of them, and what the variables held before, by name.
    """
    while True:
        before = state.read()
        with agreeing_on_reference(strategy):
            reference = runs.alone(rows.whole)
        scales = [(copy, float(value_of(copy))) for copy in _scales(model, strategy)]
        # A number that is none is not small enough.
        if not any(scale > 1.0 for _, scale in scales) or not any_of_workers(
            strategy, not reference.scale() <= _LARGEST
        ):
            return reference, before
        state.put((copy, max(scale / _LOWER, 1.0)) for copy, scale in scales)


def _scales(model: keras.Model, strategy: tf.distribute.Strategy) -> Iterator[Any]:
    """The copies in this process of what its optimizers multiply a loss by."""
    for optimizer in held_optimizers(model):
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) and optimizer.built:
            yield from strategy.experimental_local_results(optimizer.dynamic_scale.value)
