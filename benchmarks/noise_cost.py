"""What does `callbacks.NoiseScale` cost a run? At most 1 % is promised.

`python -m benchmarks.noise_cost` trains the two models of `make bench` on one replica and on two, with and without it,
in turn, at the rate of measuring that `every="auto"` chooses, and prints the ratios of times and of processor time.
Exit status 1 where the median of the times is above 1.01. Where other work runs the times say nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import keras

import tfscale
from benchmarks.contenders import PER_REPLICA_BATCH
from benchmarks.models import build, dataset, make_loss, make_optimizer
from benchmarks.processes import ROOT, plain_environment

MODELS, REPLICAS = ("mlp", "convnet"), (1, 2)
MOST = 1.01
_AUTO_STEPS = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.noise_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="of a block with and one without (default: 15)")
    parser.add_argument("--steps", type=int, default=200, help="of a block (default: 200)")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--only", nargs=2, metavar=("MODEL", "REPLICAS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.only is not None:
        model, replicas = options.only
        print(json.dumps(measure(model, int(replicas), options.rounds, options.steps)))
        return 0
    is_missed = False
    print("model    replicas  measures 1 step of  time with / without   processor time with / without")
    for model in options.models.split(","):
        for replicas in REPLICAS:
            sizes = ["--rounds", str(options.rounds), "--steps", str(options.steps)]
            command = [sys.executable, "-m", "benchmarks.noise_cost", *sizes, "--only", model, str(replicas)]
            done = subprocess.run(
                command, cwd=ROOT, env=plain_environment(), stdout=subprocess.PIPE, text=True, check=True
            )
            found = json.loads(done.stdout.splitlines()[-1])
            shown = [
                f"{statistics.median(found[name]):.3f} [{min(found[name]):.3f} .. {max(found[name]):.3f}]"
                for name in _CLOCKS
            ]
            print(f"{model:8} {replicas:<9} {found['every']:<19} {shown[0]:21} {shown[1]}", flush=True)
            is_missed = is_missed or statistics.median(found["time"]) > MOST
    return int(is_missed)


_CLOCKS = {"time": time.perf_counter, "processor": time.process_time}


def measure(model: str, replicas: int, rounds: int, steps: int) -> dict[str, object]:
    """Times blocks of steps, in turn.

    Args:
        model: Of `benchmarks.models`.
        replicas: Simulated ones.
        rounds: How many pairs of blocks.
        steps: Of a block.

    Returns:
        `every`, that was chosen, and for each clock the ratio of each round.
    """
    tfscale.simulate_replicas(replicas)
    dp = tfscale.DataParallel(per_replica_batch=PER_REPLICA_BATCH)
    data = dataset(PER_REPLICA_BATCH * replicas)
    with dp.scope():
        models = [dp.prepare(build(model, keras)) for _ in range(2)]
        for each in models:
            each.compile(make_optimizer(keras), make_loss(keras))
    noise = tfscale.callbacks.NoiseScale(every="auto")
    models[1].fit(data, steps_per_epoch=_AUTO_STEPS, epochs=2, verbose=0, callbacks=[noise])
    every = max(1, round(2 * _AUTO_STEPS / max(1, len(noise.rows))))
    measures = tfscale.callbacks.NoiseScale(every=every)
    found: dict[str, list[float]] = {name: [] for name in _CLOCKS}
    # The first round makes the functions.
    for number in range(rounds + 1):
        took = []
        for each, callbacks in zip(models, ([], [measures]), strict=True):
            begun = {name: clock() for name, clock in _CLOCKS.items()}
            each.fit(data, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
            took.append({name: clock() - begun[name] for name, clock in _CLOCKS.items()})
        for name in _CLOCKS if number else ():
            found[name].append(took[1][name] / took[0][name])
    return {"every": every, **found}


if __name__ == "__main__":
    sys.exit(main())
