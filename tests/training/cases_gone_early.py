"""Workers of which one goes before its first `fit`. Every function runs in each worker."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import keras
import numpy as np

import tfscale
from tfscale.cluster import connecting
from tfscale.training import strategy


def start(moment: str, victim: int) -> None:
    """Begins to train; the worker `victim` is killed at the moment."""
    befall = _Befall(moment, victim)
    if moment == "meeting":
        connecting.LEAST_S = 1.0
        strategy.connecting = lambda workers, rank, limit_s: connecting.connecting(workers, rank, 15.0)
    strategy.meet = befall.behind("meeting", strategy.meet)
    strategy._new_strategy = befall.behind("server", strategy._new_strategy)
    try:
        _train(befall)
    except tfscale.ClusterError as error:
        print(f"ours: {error}".replace("\n", " | "), flush=True)
        raise


class _Befall:
    """Lets the fault come, at its moment."""

    def __init__(self, moment: str, victim: int):
        self._moment = moment
        self._is_victim = f'"index": {victim}' in os.environ["TF_CONFIG"]

    def behind(self, moment: str, function: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            found = function(*args, **kwargs)
            self.at(moment)
            return found

        return called

    def at(self, moment: str) -> None:
        if self._is_victim and moment == self._moment:
            if moment == "meeting":
                # For the others to have ended it as well.
                time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)


def _train(befall: _Befall) -> None:
    dp = tfscale.DataParallel(global_batch=4, seed=1)
    befall.at("link")
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
        model.compile("sgd", "mse")
    befall.at("model")
    model.fit(np.ones((8, 3), "float32"), np.ones((8, 1), "float32"), epochs=100, verbose=0)
