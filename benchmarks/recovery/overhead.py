"""What do saves cost? The same steps without `Recovery`, with one that never saves, and with one that does, in turn.

    python -m benchmarks.recovery.overhead

What a save costs is what the steps around it lose, the writing in another thread included. Exits with 1 when one save
a minute would take more than 3.5 % of the time.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import keras

import tfscale
from benchmarks import models

BATCH = 128
LIMIT = 0.035


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery.overhead", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--every-steps", type=int, default=20)
    options = parser.parse_args(arguments)
    tfscale.simulate_replicas(2)
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    with dp.scope():
        model = dp.prepare(models.build("mlp", keras))
        model.compile(keras.optimizers.Adam(1e-4), models.make_loss(keras))
    data = dp.dataset(models.images(), shuffle=True)
    ways: dict[str, Any] = {
        "without Recovery": None,
        "Recovery, no saves": {"every_steps": 10**9},
        f"Recovery, a save every {options.every_steps} steps": {"every_steps": options.every_steps},
    }
    blocks: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(options.rounds + 1):
        for name, recovery in ways.items():
            seconds = _block(model, data, options.steps, recovery)
            if number:
                blocks[name].append(seconds)
    steps = options.steps // len(data) * len(data)
    return _report(model, blocks, steps, steps // options.every_steps)


class _Seconds(keras.callbacks.Callback):
    """The time from the end of the first epoch to that of the last, whose own save comes later."""

    begin_s: float | None = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        now_s = time.perf_counter()
        self.begin_s = now_s if self.begin_s is None else self.begin_s
        self.seconds = now_s - self.begin_s


def _block(model: keras.Model, data: Any, steps: int, recovery: dict[str, Any] | None) -> float:
    watch = _Seconds()
    with tempfile.TemporaryDirectory() as directory:
        callbacks: list[Any] = [watch]
        if recovery is not None:
            callbacks.append(tfscale.callbacks.Recovery(directory, **recovery))
        model.fit(data, epochs=1 + steps // len(data), verbose=0, callbacks=callbacks)
    return watch.seconds


def _report(model: keras.Model, blocks: dict[str, list[float]], steps: int, saves: int) -> int:
    size_mb = sum(4 * math.prod(variable.shape) for variable in (*model.variables, *model.optimizer.variables)) / 1e6
    without, idle, saving = blocks
    for name, seconds in blocks.items():
        print(f"{name:40s} {statistics.median(seconds):6.2f} s  [{min(seconds):.2f} .. {max(seconds):.2f}]")
    # Within a round, so that what else goes on meets both.
    pairs = zip(blocks[idle], blocks[saving], strict=True)
    save_s = statistics.median((with_saves - plain) / saves for plain, with_saves in pairs)
    pairs = zip(blocks[without], blocks[idle], strict=True)
    standing = statistics.median(with_it / plain - 1 for plain, with_it in pairs)
    share = max(standing, 0.0) + save_s / 60
    print(
        f"{steps} steps, state of {size_mb:.1f} MB: a save takes {save_s:.3f} s of training, Recovery itself "
        f"{standing:+.1%}; at one save a minute {share:.2%} of the time (must be at most {LIMIT:.1%})"
    )
    return int(share > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
