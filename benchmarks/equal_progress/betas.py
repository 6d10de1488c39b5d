"""Should Adam's beta_1 be kept on a batch r times larger, or become beta_1^r? Steps to a training loss, in NumPy.

`python -m benchmarks.equal_progress.betas` trains the same two dense layers on digits with AdamW, from a batch of 16 to
64 times that, drawn with replacement, so that the noise of a batch is 1 / batch at every size. "tuned" has the best of
8 rates that are a factor 2 apart; "by rule" has the rate that `scale_hyperparameters` makes of the best one at 16, and
of half of it: at the best rate of a small batch a network is at the edge of what it bears.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from tfscale import scale_hyperparameters

BATCH = 16
RATIOS = (1, 4, 16, 64)
RATES = tuple(0.001 * 2**power for power in range(8))
WAYS = ("keep", "memory")
TARGETS = (0.1, 0.03)
NUM_TRAIN = 1297
HIDDEN = 64
MAX_EXAMPLES = 200_000
# A loss counts once two evaluations in a row are there: one alone may be luck.
IN_A_ROW = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints one table for each target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.equal_progress.betas", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each kind, of which the median counts")
    parser.add_argument("--first-seed", type=int, default=0, help="for other runs than those that are written down")
    options = parser.parse_args(arguments)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    table = {
        (way, ratio, rate): measure(grown(way, ratio, rate), ratio, seeds)
        for way in WAYS
        for ratio in RATIOS
        for rate in RATES
    }
    for number, target in enumerate(TARGETS):
        best = min(RATES, key=lambda rate: table["keep", 1, rate][number])
        print(f"Steps to a training loss of {target:g}; best rate at batch {BATCH}: {best:g}.\n")
        print("ratio  beta_1  tuned  by rule  from half")
        for ratio in RATIOS:
            for way in WAYS if ratio > 1 else WAYS[:1]:
                tuned = min(table[way, ratio, rate][number] for rate in RATES)
                ruled = [grown(way, ratio, rate, is_by_rule=True) for rate in (best, best / 2)]
                by_rule, from_half = (measure(knobs, ratio, seeds)[number] for knobs in ruled)
                print(f"{ratio:<7}{way:8}{tuned:<7.0f}{by_rule:<9.0f}{from_half:.0f}", flush=True)
        print()


def grown(way: str, ratio: int, rate: float, *, is_by_rule: bool = False) -> dict[str, Any]:
    """Returns AdamW's knobs on the larger batch, with this rate or with what the rule makes of it."""
    config = {"learning_rate": rate, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7, "weight_decay": 0.004}
    adamw = {"class_name": "AdamW", "config": config}
    made = scale_hyperparameters(adamw, ratio, adam_beta_1=way).config["config"]
    return made if is_by_rule else {**made, "learning_rate": rate}


def measure(knobs: dict[str, Any], ratio: int, seeds: Sequence[int]) -> tuple[float, ...]:
    """Returns the steps to each target, the median of the seeds; inf where it is not reached."""
    runs = [steps_to(knobs, BATCH * ratio, seed) for seed in seeds]
    return tuple(float(np.median([run[number] for run in runs])) for number in range(len(TARGETS)))


def steps_to(knobs: dict[str, Any], batch: int, seed: int) -> list[float]:
    """Trains one network, and returns the steps to each of the targets."""
    rng = np.random.default_rng(seed)
    all_images, all_labels = _digits()
    order = rng.permutation(len(all_labels))[:NUM_TRAIN]
    images, labels = all_images[order], all_labels[order]
    weights = [
        rng.uniform(-1, 1, shape) * math.sqrt(6 / sum(shape)) if len(shape) > 1 else np.zeros(shape)
        for shape in ((64, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,))
    ]
    means, squares = ([np.zeros_like(each) for each in weights] for _ in range(2))
    every = max(1, 64 // batch)
    found, streaks = [math.inf] * len(TARGETS), [0] * len(TARGETS)
    for step in range(1, MAX_EXAMPLES // batch + 1):
        rows = rng.integers(0, NUM_TRAIN, batch)
        _, gradients = _loss(weights, images[rows], labels[rows])
        for weight, gradient, mean, square in zip(weights, gradients, means, squares, strict=True):
            _update(weight, gradient, mean, square, knobs, step)
        if step % every == 0:
            loss, _ = _loss(weights, images, labels)
            for number, target in enumerate(TARGETS):
                streaks[number] = streaks[number] + 1 if loss <= target else 0
                if streaks[number] == IN_A_ROW and found[number] == math.inf:
                    found[number] = step
            if math.inf not in found or not math.isfinite(loss):
                break
    return found


@functools.cache
def _digits() -> tuple[Any, Any]:
    data = load_digits()
    return data.data / 16, np.eye(10)[data.target]


def _update(weight: Any, gradient: Any, mean: Any, square: Any, knobs: dict[str, Any], step: int) -> None:
    rate, beta_1, beta_2 = knobs["learning_rate"], knobs["beta_1"], knobs["beta_2"]
    mean += (1 - beta_1) * (gradient - mean)
    square += (1 - beta_2) * (gradient * gradient - square)
    size = rate * math.sqrt(1 - beta_2**step) / (1 - beta_1**step)
    weight *= 1 - rate * knobs["weight_decay"]
    weight -= size * mean / (np.sqrt(square) + knobs["epsilon"])


def _loss(weights: Sequence[Any], images: Any, labels: Any) -> tuple[float, list[Any]]:
    """Returns the mean cross-entropy and its gradients."""
    inner, inner_bias, outer, outer_bias = weights
    hidden = np.maximum(images @ inner + inner_bias, 0)
    logits = hidden @ outer + outer_bias
    logits -= logits.max(axis=1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    slope = (np.exp(logs) - labels) / len(images)
    back = (slope @ outer.T) * (hidden > 0)
    gradients = [images.T @ back, back.sum(axis=0), hidden.T @ slope, slope.sum(axis=0)]
    return float(-(logs * labels).sum() / len(images)), gradients


if __name__ == "__main__":
    main()
