"""`NoiseScale` where tfscale chooses how many steps a call takes. Each function is called in a child."""

from __future__ import annotations

import functools
from typing import Any
from unittest import mock

import keras
import numpy as np

import tfscale
from tests.training.callbacks.cases_noise import OwnStep
from tfscale.callbacks import NoiseScale
from tfscale.training.call import steps_per_call


class Calls(keras.callbacks.Callback):
    """Notes the steps of each call, and keeps a clock on which the host's share of a step is large."""

    HOST_S, STEP_S = 0.0005, 0.00002

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.sizes: list[int] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.sizes.append(batch - self._begin + 1)
        self.now_s += self.HOST_S + self.sizes[-1] * self.STEP_S


def in_calls(num_replicas: int | None, steps: int) -> dict[str, Any]:
    """The measured steps and the sizes of the calls, where calls take one step, as many as is chosen, or 300.

    Args:
        num_replicas: Of one process; None for a worker of several.
        steps: Of each of two epochs.
    """
    if num_replicas is not None:
        tfscale.simulate_replicas(num_replicas)
    random = np.random.default_rng(0)
    x = random.normal(size=(8 * steps, 3)).astype("float32")
    y = (x[:, 0] + random.normal(size=len(x))).astype("float32")
    ways: dict[str, Any] = {"one": (None, 1, 1), "chosen": ("always", 1, 1)}
    ways |= {"one of 3": (None, 1, 3), "chosen, one of 3": ("always", 1, 3), "given": (None, 300, 2)}
    found = {}
    strategy = None
    for way, (chosen, compiled, every) in ways.items():
        devices = {} if strategy is None else {"devices": strategy}
        dp = tfscale.DataParallel(global_batch=8, seed=1, steps_per_execution=chosen, **devices)
        strategy = dp.strategy
        with dp.scope():
            # Its step is the same to the bit in calls of any size.
            model = dp.prepare(OwnStep([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)]), check="off")
            model.compile(keras.optimizers.SGD(0.01), "mse", steps_per_execution=compiled)
        noise, calls = NoiseScale(every=every), Calls()
        clocked = functools.partial(steps_per_call.StepsPerCall, clock=lambda calls=calls: calls.now_s)
        with mock.patch.object(steps_per_call, "StepsPerCall", clocked):
            model.fit(x, y, shuffle=False, verbose=0, epochs=2, callbacks=[noise, calls])
        rows = [(row.step, row.seen, row.moments, row.loss) for row in noise.rows]
        found[way] = {"rows": rows, "most": max(calls.sizes), "calls": len(calls.sizes), "found": noise.found}
    return found
