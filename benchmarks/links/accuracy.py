"""What does each way to send gradients cost in accuracy? Handwritten digits on two replicas, beside the exact run.

python -m benchmarks.links.accuracy [--seeds 5] [--epochs 30] [--options "double buffering"]

Runs of one seed begin with the same weights and see the same examples in the same order, so they are compared in pairs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import tfscale
from benchmarks.equal_progress import EPOCHS, recipes
from benchmarks.equal_progress.report import Sample

NUM_REPLICAS = 2
RECIPES = ("SGD, cosine", "AdamW, cosine")
EXACT = "float32"
OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    EXACT: dict,
    "bf16": lambda: {"compression": "bf16"},
    "bf16 with feedback": lambda: {"compression": tfscale.ErrorFeedback("bf16")},
    "fp16": lambda: {"compression": "fp16"},
    "PowerSGD, rank 1": lambda: {"compression": tfscale.PowerSGD(1)},
    "PowerSGD, rank 2": lambda: {"compression": tfscale.PowerSGD(2)},
    "PowerSGD, rank 4": lambda: {"compression": tfscale.PowerSGD(4)},
    "double buffering": lambda: {"double_buffering": True},
}


def main() -> int:
    """Prints the table; the exit status is 1 when bf16 is beyond one standard error of exact."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.links.accuracy", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each kind")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of each run")
    parser.add_argument("--options", nargs="+", choices=OPTIONS, default=list(OPTIONS), help="beside float32")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES), help="of training")
    options = parser.parse_args()
    tfscale.simulate_replicas(NUM_REPLICAS)
    passed = True
    print(f"{options.seeds} seeds, {options.epochs} epochs: test accuracy in percent, mean +- standard error.\n")
    print(f"{'recipe':15}{'gradients':20}{'accuracy':17}{'beside float32':17}{'test loss':10}")
    for recipe in options.recipes:
        found: dict[str, Sample] = {}
        for name in dict.fromkeys((EXACT, *options.options)):
            runs = [_train(recipe, name, seed, options.epochs) for seed in range(options.seeds)]
            found[name] = Sample(tuple(100 * accuracy for accuracy, _ in runs))
            differences = np.subtract(found[name].values, found[EXACT].values)
            loss = float(np.mean([loss for _, loss in runs]))
            verdict = ""
            if name == "bf16":
                verdict = "ok" if _is_within(found[name], found[EXACT]) else "MISSED"
                passed = passed and verdict == "ok"
            beside = "" if name == EXACT else str(Sample(tuple(differences)))
            print(f"{recipe:15}{name:20}{found[name]!s:17}{beside:17}{loss:<10.4f}{verdict}", flush=True)
    return int(not passed)


def _is_within(sample: Sample, exact: Sample) -> bool:
    return abs(sample.mean - exact.mean) <= exact.standard_error


def _train(recipe: str, name: str, seed: int, epochs: int) -> tuple[float, float]:
    """Accuracy and loss on the test images at the end of one run."""
    keras.backend.clear_session()
    digits = recipes.load(seed)
    dp = tfscale.DataParallel(
        global_batch=recipes.PER_REPLICA_BATCH, seed=seed, network=tfscale.Network(**OPTIONS[name]())
    )
    with dp.scope():
        model = dp.prepare(recipes.build_model())
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(recipes.RECIPES[recipe](), loss, metrics=["accuracy"], steps_per_execution=7)
    model.fit(dp.dataset(digits.train, shuffle=True), epochs=epochs, verbose=0)
    test_loss, accuracy = model.evaluate(dp.dataset(digits.test), verbose=0)
    return accuracy, test_loss


if __name__ == "__main__":
    sys.exit(main())
