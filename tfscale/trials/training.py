"""How many steps does one training run of a study take to the target?"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfscale.data_parallel import DataParallel
from tfscale.errors import StudyError
from tfscale.gradients.model_facts import model_facts
from tfscale.study.goal import Goal, next_evaluation, steps_to_goal
from tfscale.study.result import BUDGET, REACHED, Trial, TrialResult
from tfscale.training.strategy import make_strategy

# Examples of the training data on which `loss` and the like are evaluated.
_MOST_EVALUATED = 4096


class Limits(NamedTuple):
    """When a trial is given up."""

    steps: float
    """Twice the least that another one took at its batch."""
    budget: float
    """Steps that any trial may take."""


class Arrays(NamedTuple):
    """The examples of a study."""

    train: tuple[Any, Any]
    validation: tuple[Any, Any] | None

    @property
    def num_examples(self) -> int:
        """Of training."""
        return len(self.train[1])


def read_arrays(function: Callable[[], Any]) -> Arrays:
    """Calls the user's `data`.

    Raises:
        StudyError: When it returns no arrays: each batch of a study is drawn from them anew.
    """
    given = function()
    if isinstance(given, Mapping):
        pair: Any = given.get("x"), given.get("y")
        validation = given.get("validation_data")
    else:
        pair, validation = given if isinstance(given, tuple) and len(given) == 2 else (None, None), None
    if not all(hasattr(each, "shape") and hasattr(each, "__getitem__") for each in pair) or len(pair[0]) < 1:
        raise StudyError(
            "`data` must return arrays: (x, y), or a dict of x, y and validation_data=(x, y).\n"
            f"Received: {type(given).__name__}. A study draws its batches, of any size, from arrays in memory."
        )
    return Arrays((np.asarray(pair[0]), np.asarray(pair[1])), validation)


def names_of(build: Callable[..., Any]) -> dict[str, Any]:
    """The arguments of `build`, with their defaults."""
    return {name: each.default for name, each in inspect.signature(build).parameters.items()}


def train_trial(
    build: Callable[..., Any],
    arrays: Arrays,
    trial: Trial,
    goal: Goal,
    limits: Limits,
    *,
    micro_batch: int | None = None,
) -> TrialResult:
    """Trains until the target is reached, or the trial is given up.

    Args:
        build: Gets what it names of `batch` and of the trial's parameters; returns the compiled model.
        arrays: Drawn in an order of the seed's, every example once in each pass.
        trial: What to run.
        goal: The target.
        limits: When to give up.
        micro_batch: Most rows of one pass; None for all.
    """
    begun_s = time.perf_counter()
    model = make_model(build, trial, micro_batch)
    evaluate = make_evaluation(model, arrays, goal)
    steps, reason, found = math.inf, BUDGET, []
    at, order = next_evaluation(0), Order(arrays.num_examples, trial.seed)
    for step in range(1, int(limits.budget) + 1):
        rows = order.take(trial.batch)
        model.train_on_batch(arrays.train[0][rows], arrays.train[1][rows])
        if step < at:
            continue
        at = next_evaluation(step)
        found.append((step, evaluate()))
        if not math.isfinite(found[-1][1]):
            reason = "not finite"
            break
        reached = steps_to_goal(found[-3:] if len(found) > 2 else found, goal)
        if reached is not None:
            steps, reason = reached, REACHED
            break
        if step > limits.steps:
            reason = "2x behind"
            break
    device = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    seconds = time.perf_counter() - begun_s
    return TrialResult(trial, steps, reason, seconds, device[0].device_type, "", tuple(found), model_facts(model))


def make_model(build: Callable[..., Any], trial: Trial, micro_batch: int | None) -> Any:
    """Returns what `build` makes for a trial; its steps take `micro_batch` rows at a time, where that is fewer."""
    keras.utils.set_random_seed(1000 + trial.seed)
    named = {"batch": trial.batch, **trial.parameters}
    arguments = {name: named[name] for name in names_of(build) if name in named}
    if micro_batch is None or micro_batch >= trial.batch:
        return build(**arguments)
    strategy = make_strategy(devices=1)
    with strategy.scope():
        model = build(**arguments)
    return DataParallel(global_batch=trial.batch, micro_batch=micro_batch, devices=strategy).prepare(model)


class Order:
    """Every example once in each pass, in an order of the seed's.

    Args:
        count: Of examples.
        seed: Of the orders.
    """

    def __init__(self, count: int, seed: int):
        self._random = np.random.default_rng(seed)
        self._count = count
        self._left = self._random.permutation(count)

    def take(self, batch: int) -> np.ndarray:
        """The next rows; a batch may reach into the next pass."""
        while len(self._left) < batch:
            self._left = np.concatenate([self._left, self._random.permutation(self._count)])
        rows, self._left = self._left[:batch], self._left[batch:]
        return rows


def make_evaluation(model: Any, arrays: Arrays, goal: Goal) -> Callable[[], float]:
    """Returns what computes the goal's metric of a model.

    Raises:
        StudyError: When the model is not compiled, or there are no examples for it.
    """
    if not isinstance(model, keras.Model) or not model.compiled:
        raise StudyError(
            f"`build` must return a compiled Keras model.\nReceived: {type(model).__name__}. Call `compile` in it."
        )
    is_validation = goal.metric.startswith("val_")
    if is_validation and arrays.validation is None:
        raise StudyError(
            f"A target of validation needs validation_data.\nReceived: {goal}. Return it from `data`, or take "
            f"{goal.metric.removeprefix('val_')!r}."
        )
    pair: Any = arrays.validation if is_validation else tuple(each[:_MOST_EVALUATED] for each in arrays.train)
    name, prefix = goal.metric.removeprefix("val_"), "val_" if is_validation else ""

    def evaluate() -> float:
        model.reset_metrics()
        logs = (
            model.test_on_batch(*pair, return_dict=True)
            if len(pair[1]) <= _MOST_EVALUATED
            else model.evaluate(*pair, batch_size=_MOST_EVALUATED, verbose=0, return_dict=True)
        )
        model.reset_metrics()
        if name not in logs:
            raise StudyError(
                f"The target must be one of the metrics of the model.\nReceived: {goal.metric!r}; there are "
                f"{', '.join(prefix + each for each in sorted(logs))}. Give it to `compile`, or take one of these."
            )
        return float(logs[name])

    return evaluate
