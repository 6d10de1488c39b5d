"""What do saves cost? The same steps without `Recovery`, with one that never saves, and with one that does, in turn.

    python -m benchmarks.recovery.overhead

What a save costs is what the steps around it lose, the writing in another thread included. What `Recovery` costs where
it saves nothing is too little to be seen in the time of a block, so a clock of processor time is read in it, too. Exits
with 1 when one save a minute and that would take more than 1 % of the time.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import keras

import tfscale
from benchmarks import models
from tfscale.recovery.run import RecoveryRun

BATCH = 128
LIMIT = 0.01
# What `Recovery` does in the course of a run, besides beginning and ending it.
_HOOKS = ("before_call", "begin_epoch", "end_epoch")


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
    blocks: dict[str, list[_Seconds]] = {name: [] for name in ways}
    for number in range(options.rounds + 1):
        for name, recovery in ways.items():
            seconds = _block(model, data, options.steps, recovery)
            if number:
                blocks[name].append(seconds)
    steps = options.steps // len(data) * len(data)
    return _report(model, blocks, steps, steps // options.every_steps)


class _Seconds(keras.callbacks.Callback):
    """The time from the end of the first epoch to that of the last, whose own save comes later."""

    def __init__(self) -> None:
        super().__init__()
        self._begun: list[float] = []
        self.hooks_cpu_s = 0.0
        """Processor time of `Recovery` on the training thread, since then too."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        now = [time.perf_counter(), time.process_time(), self.hooks_cpu_s]
        self._begun = self._begun or now
        self.seconds, self.cpu_s, self.standing_cpu_s = (
            end - begin for end, begin in zip(now, self._begun, strict=True)
        )


def _block(model: keras.Model, data: Any, steps: int, recovery: dict[str, Any] | None) -> _Seconds:
    watch = _Seconds()
    with tempfile.TemporaryDirectory() as directory, _clocked(watch):
        callbacks: list[Any] = [watch]
        if recovery is not None:
            callbacks.append(tfscale.callbacks.Recovery(directory, **recovery))
        model.fit(data, epochs=1 + steps // len(data), verbose=0, callbacks=callbacks)
    return watch


@contextlib.contextmanager
def _clocked(watch: _Seconds) -> Iterator[None]:
    """Lets `watch` know how long `Recovery` itself takes."""
    hooks = {name: getattr(RecoveryRun, name) for name in _HOOKS}

    def clocked(hook: Any) -> Any:
        @functools.wraps(hook)
        def call(*args: Any) -> None:
            begin_s = time.thread_time()
            hook(*args)
            watch.hooks_cpu_s += time.thread_time() - begin_s

        return call

    for name, hook in hooks.items():
        setattr(RecoveryRun, name, clocked(hook))
    try:
        yield
    finally:
        for name, hook in hooks.items():
            setattr(RecoveryRun, name, hook)


def _report(model: keras.Model, blocks: dict[str, list[_Seconds]], steps: int, saves: int) -> int:
    size_mb = sum(4 * math.prod(variable.shape) for variable in (*model.variables, *model.optimizer.variables)) / 1e6
    without, idle, saving = blocks.values()
    for name, block in blocks.items():
        wall_s, cpu_s = [each.seconds for each in block], statistics.median(each.cpu_s for each in block)
        print(
            f"{name:40s} {statistics.median(wall_s):6.2f} s  [{min(wall_s):.2f} .. {max(wall_s):.2f}], "
            f"{cpu_s:6.2f} s of processor time"
        )
    # Within a round, so that what else goes on meets both.
    save_s = statistics.median(
        (with_saves.seconds - plain.seconds) / saves for plain, with_saves in zip(idle, saving, strict=True)
    )
    changes = [with_it.cpu_s / plain.cpu_s - 1 for plain, with_it in zip(without, idle, strict=True)]
    step_s = statistics.median(each.seconds for each in without) / steps
    standing_s = statistics.median(each.standing_cpu_s for each in idle) / steps
    share = standing_s / step_s + save_s / 60
    print(
        f"{steps} steps, state of {size_mb:.1f} MB: a save takes {save_s:.3f} s of training, Recovery itself "
        f"{1e3 * standing_s:.3f} ms of a step of {1e3 * step_s:.1f} ms, its ends of epochs included (processor time of "
        f"all: {statistics.median(changes):+.1%} [{min(changes):+.1%} .. {max(changes):+.1%}]); at one save a minute "
        f"{share:.2%} of the time (must be at most {LIMIT:.1%})"
    )
    return int(share > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
