"""How far is the time of a batch that was left out of the fit `a + c b` of a step from what the others foretell?

`python -m benchmarks.step_line` takes the time of a step of two models on one replica at five batches, in random order,
and leaves one out after the other: 10 % are wanted. It is the time of the processor, in one thread: other work on the
machine hardly comes to it. Judged are the batches between others; the smallest and the largest one, which lie beyond
the line of the others, are printed too. Exit status 1 where one that is judged is farther off.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from benchmarks.models import build, dataset, make_loss, make_optimizer
from tfscale.plan import StepTime

MODELS, BATCHES = ("mlp", "convnet"), (16, 32, 64, 128, 256)
MOST = 0.1
_BLOCK_S = 0.1


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_line", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="of a block of steps of each batch (default: 15)")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    options = parser.parse_args(arguments)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    is_missed = False
    print("model    batch  ms a step  foretold by the others  off")
    for model in options.models.split(","):
        measured = step_times(model, options.rounds)
        for batch, foretold in left_out(measured).items():
            off = foretold / measured[batch] - 1
            is_between = min(BATCHES) < batch < max(BATCHES)
            is_missed = is_missed or (is_between and abs(off) > MOST)
            note = "" if is_between else "  beyond the others"
            times = f"{1000 * measured[batch]:<10.2f} {1000 * foretold:<23.2f}"
            print(f"{model:8} {batch:<6} {times} {off:+.1%}{note}", flush=True)
    return int(is_missed)


def left_out(measured: Mapping[int, float]) -> dict[int, float]:
    """What the fit of all other batches says of each, in seconds.

    Args:
        measured: Seconds by batch; five or more.

    Example:
        >>> from benchmarks.step_line import left_out
        >>> found = left_out({batch: 0.01 + 0.001 * batch for batch in (8, 16, 32, 64, 128)})
        >>> round(found[32], 6)
        0.042
    """
    found = {}
    for batch in measured:
        line = StepTime.fit({other: seconds for other, seconds in measured.items() if other != batch})
        # Without the band of points that lie on no line.
        found[batch] = (line.fixed_s or 0.0) + (line.per_example_s or 0.0) * batch
    return found


def step_times(name: str, rounds: int) -> dict[int, float]:
    """Seconds of the processor in a step, by batch: the median of the blocks.

    Args:
        name: Of the model.
        rounds: How many blocks of each batch.
    """
    model = build(name, keras)
    model.compile(make_optimizer(keras), make_loss(keras))
    model.fit(dataset(BATCHES[0]), steps_per_epoch=2, verbose=0)
    batches = {batch: iter(dataset(batch)) for batch in BATCHES}
    steps = {}

    def block(batch: int, count: int) -> float:
        begun_s = time.process_time()
        for _ in range(count):
            logs = model.train_function(batches[batch])
        float(logs["loss"])
        return (time.process_time() - begun_s) / count

    for batch in BATCHES:
        # The first ones trace.
        block(batch, 3)
        steps[batch] = max(2, round(_BLOCK_S / block(batch, 3)))
    took: dict[int, list[float]] = {batch: [] for batch in BATCHES}
    order = np.random.default_rng(0)
    for _ in range(rounds):
        for batch in order.permutation(BATCHES).tolist():
            took[batch].append(block(batch, steps[batch]))
    return {batch: statistics.median(each) for batch, each in took.items()}


if __name__ == "__main__":
    sys.exit(main())
