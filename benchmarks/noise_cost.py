"""What does `callbacks.NoiseScale` cost a run? At most 1 % is promised.

`python -m benchmarks.noise_cost` builds models on one replica and on two, some with it and as many without, and runs
blocks of steps of each in random order. Processor time is compared, of a single thread for each replica: other work on
the machine hardly comes to it. Added up are three parts:

- fixed: what is in the graph of every step, measured or not: counters and conditions. It is the same in every model,
  and so it is measured where it is the largest part, in a perceptron of 16 units. Two models that are alike differ by
  up to 4 % by where their memory lies, in which it would be lost otherwise;
- sampled: what a measured step takes more, by the number of steps of which `every="auto"` measures one;
- called: the callback's own code.

The last two are those of the two models of `make bench`. Exit status 1 where the sum is above 1 %, 2 where the
interval of 95 % of the fixed part alone reaches above it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from benchmarks.contenders import PER_REPLICA_BATCH
from benchmarks.models import IMAGE_SHAPE, NUM_CLASSES, build, dataset, make_loss, make_optimizer
from benchmarks.processes import ROOT, plain_environment
from tfscale.gradients.noise import RECORDER
from tfscale.gradients.noise_recorder import OFF

MODELS, REPLICAS = ("mlp", "convnet"), (1, 2)
MOST = 0.01
# Seconds of a block; the more steps, the longer.
_BLOCK_S = 0.05
_CALLS = 20_000
_TINY, _TINY_ROWS, _FEW_PAIRS = "tiny", 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.noise_cost", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="of small models with and without it (default: 20)")
    parser.add_argument("--rounds", type=int, default=12, help="of blocks of each model (default: 12)")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--only", nargs=2, metavar=("MODEL", "REPLICAS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.only is not None:
        model, replicas = options.only
        print(json.dumps(measure(model, int(replicas), options.pairs, options.rounds)))
        return 0
    status = 0
    print("model    replicas  step     fixed [95 %]                         sampled, 1 step of   called   sum")
    for replicas in REPLICAS:
        least = _child(_TINY, replicas, options.pairs, options.rounds)
        mean_s, end_s = mean_and_end([least["step_s"] * each for each in least["fixed"]])
        for model in options.models.split(","):
            found = _child(model, replicas, _FEW_PAIRS, options.rounds)
            step_s = found["step_s"]
            sampled = statistics.median(found["measured"]) / found["every"]
            cost = mean_s / step_s + sampled + found["called"]
            least_us, mean_us, most_us = (1e6 * each for each in (mean_s - end_s, mean_s, mean_s + end_s))
            fixed = f"{mean_s / step_s:.2%}: {mean_us:.0f} us [{least_us:.0f} to {most_us:.0f}]"
            more = f"{sampled:.2%}, {found['every']}"
            head = f"{model:8} {replicas:<9} {1000 * step_s:<5.1f} ms {fixed:36}"
            print(f"{head} {more:20} {found['called']:.2%}    {cost:.2%}", flush=True)
            status = 1 if cost > MOST else status or 2 * (cost + end_s / step_s > MOST)
    return status


def _child(model: str, replicas: int, pairs: int, rounds: int) -> dict[str, Any]:
    sizes = ["--pairs", str(pairs), "--rounds", str(rounds)]
    command = [sys.executable, "-m", "benchmarks.noise_cost", *sizes, "--only", model, str(replicas)]
    done = subprocess.run(command, cwd=ROOT, env=plain_environment(), stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def mean_and_end(values: Sequence[float]) -> tuple[float, float]:
    """A mean, and half of the width of its interval of 95 %, by Student's t of 9 degrees of freedom or more.

    Example:
        >>> from benchmarks.noise_cost import mean_and_end
        >>> mean, end = mean_and_end([0.01, 0.03] * 8)
        >>> round(mean, 3), round(end, 3)
        (0.02, 0.006)
    """
    return statistics.fmean(values), 2.262 * statistics.stdev(values) / math.sqrt(len(values))


def measure(model: str, replicas: int, pairs: int, rounds: int) -> dict[str, Any]:
    """Times blocks of steps of models with it and without.

    Args:
        model: Of `benchmarks.models`, or `"tiny"`.
        replicas: Simulated ones.
        pairs: How many models of each kind.
        rounds: How many blocks of each.

    Returns:
        `step_s` of the processor, `every` that was chosen, `fixed` and `measured` of each pair, by the time of a step,
        and `called`, likewise.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(replicas)
    tfscale.simulate_replicas(replicas)
    rows = _TINY_ROWS if model == _TINY else PER_REPLICA_BATCH
    dp = tfscale.DataParallel(per_replica_batch=rows)
    data = dataset(rows * replicas)
    found: dict[str, Any] = {"fixed": [], "measured": []}
    steps_s, chosen = [], []
    order = np.random.default_rng(0)
    for _ in range(pairs):
        with dp.scope():
            models = [dp.prepare(_tiny() if model == _TINY else build(model, keras)) for _ in range(2)]
            for each in models:
                each.compile(make_optimizer(keras), make_loss(keras))
        noise = tfscale.callbacks.NoiseScale(every="auto")
        for each, callbacks in zip(models, ([], [noise]), strict=True):
            each.fit(data, steps_per_epoch=40, verbose=0, callbacks=callbacks)
        took = _blocks(models, data, rounds, order)
        steps_s.append(took["without"])
        found["fixed"].append(took["off"] / took["without"] - 1)
        found["measured"].append((took["on"] - took["off"]) / took["without"])
        chosen.append(noise.every)
    step_s = statistics.median(steps_s)
    return {
        "step_s": step_s,
        "every": statistics.median_low(chosen),
        "called": _called_s(models[1], data) / step_s,
        **found,
    }


def _tiny() -> keras.Model:
    """With as many variables as those of `make bench`, or nearly, and hardly any work."""
    image = keras.Input(IMAGE_SHAPE)
    x = keras.layers.Flatten()(image)
    for _ in range(2):
        x = keras.layers.Dense(16, activation="relu")(x)
    return keras.Model(image, keras.layers.Dense(NUM_CLASSES)(x))


def _blocks(models: Sequence[Any], data: Any, rounds: int, order: np.random.Generator) -> dict[str, float]:
    """Processor time of a step, the median of the blocks, by kind."""
    strategy = models[0].distribute_strategy
    batches: Iterator[Any] = iter(strategy.experimental_distribute_dataset(data))
    recorder = RECORDER.of(models[1].optimizer)
    kinds: dict[str, tuple[Callable[..., Any], int]] = {
        "without": (models[0].train_function, OFF),
        "off": (models[1].train_function, OFF),
        "on": (models[1].train_function, 1),
    }

    def block(kind: str, steps: int) -> float:
        function, every = kinds[kind]
        # Empty: what does not fit is not measured.
        recorder.take()
        recorder.measure_every(every)
        begun_s = time.process_time()
        for _ in range(steps):
            logs = function(batches)
        float(logs["loss"])
        return (time.process_time() - begun_s) / steps

    steps = max(3, min(200, round(_BLOCK_S / min(block("without", 3) for _ in range(2)))))
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds + 1):
        for kind in order.permutation(list(kinds)):
            seconds = block(kind, steps)
            # The first round warms.
            if number:
                took[kind].append(seconds)
    recorder.begin(OFF)
    return {kind: statistics.median(each) for kind, each in took.items()}


def _called_s(model: Any, data: Any) -> float:
    """Seconds of the callback's own code in a step in which nothing is due to be taken."""
    noise, took_s = tfscale.callbacks.NoiseScale(every=1000), []

    class Calls(keras.callbacks.Callback):
        """Calls it as `fit` does."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            del logs
            begun_s = time.process_time()
            for _ in range(_CALLS):
                noise.on_train_batch_begin(batch)
                noise.on_train_batch_end(batch)
            took_s.append((time.process_time() - begun_s) / _CALLS)

    model.fit(data, steps_per_epoch=1, verbose=0, callbacks=[noise, Calls()])
    return took_s[0]


if __name__ == "__main__":
    sys.exit(main())
