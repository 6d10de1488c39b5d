"""How many examples do branches with a grown batch take, from one checkpoint of a user's run?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras

from tfscale.errors import MeasureError
from tfscale.gradients.model_facts import model_facts
from tfscale.parity.target import Target, load
from tfscale.plan.branches import FACTORS, from_branches, stretch_steps
from tfscale.plan.critical_batch import CriticalBatch
from tfscale.scaling.derivation import TunedRun, derive_ways
from tfscale.scaling.optimizer_table import OPTIMIZERS
from tfscale.scaling.recipe import Recipe
from tfscale.study.goal import Goal, next_evaluation, steps_to_goal
from tfscale.trials.training import Arrays, Order, make_evaluation, read_arrays

# Beside the branches with a grown batch: the same batch at twice the rate, which tells whether that was tuned.
_TWICE_THE_RATE = 1
_BEGIN, _SEEDS, _SMOOTHED = 64, 3, 8
# A branch that takes so many times the examples has not got there.
_MOST = 6
_KNOBS = ("learning_rate", "momentum", "beta_1", "beta_2", "rho", "epsilon", "weight_decay")


class _Main(NamedTuple):
    """The run from which branches go."""

    model: Any
    arrays: Arrays
    batch: int
    begin: int
    stretch: int


def calibrate(
    build: Target,
    data: Target,
    *,
    batch: int,
    begin: int = _BEGIN,
    seeds: int = _SEEDS,
    check: Callable[[Mapping[str, Any]], None] = lambda facts: None,
) -> CriticalBatch:
    """Trains a main run at a batch, and from a checkpoint on branches with 4, 8 and 16 times that, by the rule alone.

    The target is the loss of the main run after a stretch; 20 steps at the largest branch, or more.

    Args:
        build: Returns the compiled model; at a constant rate, for that batch.
        data: Returns arrays, as for `tfscale study`.
        batch: Of the main run.
        begin: Steps before the checkpoint.
        seeds: Orders of the data, of which the medians are taken.
        check: Told what `model_facts` says of the model, before it is trained; raises where it is another one.

    Raises:
        MeasureError: When the data have fewer examples than the largest branch's batch, the rate is scheduled, the
            optimizer is none of Keras's, or the main run gets nowhere.
        StudyError: When `data` returns no arrays.
    """
    arrays = read_arrays(load(data))
    if max(FACTORS) * batch > arrays.num_examples:
        raise MeasureError(
            f"Branches take up to {max(FACTORS)} times the batch.\n"
            f"Received: a batch of {batch}, and {arrays.num_examples} examples. Calibrate at a smaller batch."
        )
    function = load(build)
    found: dict[int, list[float]] = {factor: [] for factor in (*FACTORS, _TWICE_THE_RATE)}
    for seed in range(seeds):
        keras.utils.set_random_seed(1000 + seed)
        model = function()
        config = _config(model)
        if not model.built:
            model(arrays.train[0][:1])
        check(model_facts(model))
        memory = float(config.get("beta_1", config.get("momentum", 0.0)) or 0.0)
        main = _Main(model, arrays, batch, begin, stretch_steps(memory))
        for factor, examples in _branches(main, config, seed).items():
            found[factor].append(examples)
    medians = {factor: statistics.median_high(each) for factor, each in found.items()}
    twice = medians.pop(_TWICE_THE_RATE)
    return from_branches(medians, batch, at_twice_the_rate=twice)


def _config(model: Any) -> dict[str, Any]:
    if not isinstance(model, keras.Model) or not model.compiled or model.optimizer is None:
        raise MeasureError(
            f"`build` must return a compiled Keras model.\nReceived: {type(model).__name__}. Call `compile` in it."
        )
    name, config = type(model.optimizer).__name__, dict(model.optimizer.get_config())
    if name not in OPTIMIZERS or not isinstance(config["learning_rate"], int | float):
        received = name if name not in OPTIMIZERS else "a schedule of the rate"
        raise MeasureError(
            "Branches are calibrated with an optimizer of Keras at a constant rate.\n"
            f"Received: {received}. `tfscale study` tells in any case."
        )
    return config


def _branches(main: _Main, config: dict[str, Any], seed: int) -> dict[int, float]:
    """Examples of each branch, relative to the main run's; infinite where it did not get there."""
    model = main.model
    evaluate = make_evaluation(model, main.arrays, Goal("loss", 0.0, True))
    order = Order(main.arrays.num_examples, seed)
    _train(main, order, main.batch, main.begin)
    state = [variable.numpy() for variable in _variables(model)]
    before = evaluate()
    _train(main, order, main.batch, main.stretch - _SMOOTHED)
    ends = []
    for _ in range(_SMOOTHED):
        _train(main, order, main.batch, 1)
        ends.append(evaluate())
    target = statistics.fmean(ends)
    if not target < before:
        raise MeasureError(
            "The main run must get on in the stretch from which branches are judged.\n"
            f"Received: loss {before:.4g} before it, and {target:.4g} after {main.stretch} steps. Take another model, "
            "or an earlier part of its training."
        )
    # The middle of the steps over which the target is a mean.
    took = main.stretch - (_SMOOTHED - 1) / 2
    found = {}
    for factor in (*FACTORS, _TWICE_THE_RATE):
        for variable, value in zip(_variables(model), state, strict=True):
            variable.assign(value)
        _grow(model, config, main, factor)
        own = Order(main.arrays.num_examples, 1000 * (seed + 1) + factor)
        steps = _steps_to(main, own, factor, Goal("loss", target, True), evaluate)
        found[factor] = steps * factor / took
    return found


def _steps_to(main: _Main, order: Order, factor: int, goal: Goal, evaluate: Callable[[], float]) -> float:
    evaluations: list[tuple[int, float]] = []
    at = next_evaluation(0)
    for step in range(1, _MOST * main.stretch // factor + 1):
        _train(main, order, factor * main.batch, 1)
        if step < at:
            continue
        at = next_evaluation(step)
        evaluations.append((step, evaluate()))
        if not math.isfinite(evaluations[-1][1]):
            return math.inf
        reached = steps_to_goal(evaluations[-3:], goal)
        if reached is not None:
            return reached
    return math.inf


def _train(main: _Main, order: Order, batch: int, steps: int) -> None:
    for _ in range(steps):
        rows = order.take(batch)
        main.model.train_on_batch(main.arrays.train[0][rows], main.arrays.train[1][rows])


def _variables(model: Any) -> list[Any]:
    return [*model.variables, *model.optimizer.variables]


def _grow(model: Any, config: dict[str, Any], main: _Main, factor: int) -> None:
    """Gives the optimizer what the rule makes of its recipe for so many replicas."""
    optimizer = model.optimizer
    knobs = {name: float(config[name]) for name in _KNOBS if config.get(name)}
    recipe = Recipe(examples_per_epoch=main.arrays.num_examples, reference_batch=main.batch)
    run = TunedRun(type(optimizer).__name__, knobs, recipe)
    _, grown = derive_ways(run, num_replicas=factor, per_replica_batch=main.batch)
    for knob in grown.knobs:
        if knob.name in knobs:
            setattr(optimizer, knob.name, float(knob.new))
    if factor == _TWICE_THE_RATE:
        optimizer.learning_rate = 2 * knobs["learning_rate"]
    # All but the rate are in the graph.
    model.make_train_function(force=True)
