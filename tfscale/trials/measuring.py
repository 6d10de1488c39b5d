"""How large is the noise scale of a user's model on its data?"""

from __future__ import annotations

import os
import sys
from typing import Any

import keras

from tfscale.data_parallel import DataParallel
from tfscale.errors import MeasureError
from tfscale.exact.plain_step import has_own_step
from tfscale.parity.target import Target, load
from tfscale.parity.user_data import read_user_data
from tfscale.training.callbacks.noise_scale import NoiseScale
from tfscale.training.strategy import make_strategy

# So many shards a step, where there are as many examples: more of them tell little more.
_SHARDS = 4
_SEED = 0


class _Steps(keras.callbacks.Callback):
    """Ends `fit` after so many steps.

    Args:
        steps: How many.
    """

    def __init__(self, steps: int):
        super().__init__()
        self._left = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts; one call is one step."""
        del batch, logs
        self._left -= 1
        if not self._left:
            self.model.stop_training = True


def measure(
    build: Target,
    data: Target,
    *,
    steps: int,
    global_batch: int | None = None,
    per_layer: bool = False,
    path: str | os.PathLike[str] | None = None,
) -> NoiseScale:
    """Trains a user's model for some steps, and measures each of them.

    On the devices that are here. One replica takes its rows in four micro-steps; so does each of a few.

    Args:
        build: Returns the compiled model.
        data: Returns the training data, as for `tfscale.verify`.
        steps: How many.
        global_batch: Examples of a step; None takes the data's own.
        per_layer: Whether to measure each layer too.
        path: Of the trace; None to write none.

    Raises:
        MeasureError: When there is no model, its step is one of its own on one replica, or a step has one example.
        ParityError: When the script has no such function, or its data cannot be trained on.
    """
    strategy = make_strategy()
    keras.utils.set_random_seed(_SEED)
    functions = load(build), load(data)
    # Of data without an end as many steps are kept as are made.
    user_data = read_user_data(functions[1], seed=_SEED, epochs=1, global_batch=global_batch)
    keras.utils.set_random_seed(_SEED)
    with strategy.scope():
        model = functions[0]()
    if not isinstance(model, keras.Model) or not model.compiled:
        raise MeasureError(
            f"`{build}` must return a compiled Keras model.\n"
            f"Received: {type(model).__name__}. Call `compile` in it, and return the model."
        )
    batch, replicas = user_data.facts.global_batch, strategy.num_replicas_in_sync
    micro_batch = _micro_batch(model, batch, replicas)
    dp = DataParallel(global_batch=batch, devices=strategy, micro_batch=micro_batch)
    noise = NoiseScale(every=1, per_layer=per_layer, path=path)
    arguments = dict(user_data.make_arguments())
    callbacks = [*arguments.pop("callbacks", ()), noise, _Steps(steps)]
    epochs = -(-steps // user_data.facts.num_steps)
    dp.prepare(model).fit(**arguments, epochs=epochs, verbose=0, callbacks=callbacks)
    return noise


def _micro_batch(model: keras.Model, batch: int, replicas: int) -> int | None:
    """Rows of a shard; None where each replica is one."""
    own_step = has_own_step(model, "train_step")
    if batch < 2 or (replicas == 1 and own_step):
        received = "a batch of one example" if batch < 2 else "a `train_step` of one's own on one replica"
        raise MeasureError(
            "The noise scale compares the gradients of two parts of a batch, or more.\n"
            f"Received: {received}. Give --global-batch, or train on two replicas with `callbacks.NoiseScale`."
        )
    shares = max(1, _SHARDS // replicas)
    return None if own_step or shares == 1 else max(1, -(-batch // (replicas * shares)))


def import_like_python(paths: list[str]) -> None:
    """Lets scripts find what they import, as where Python is started in this directory."""
    sys.path[:0] = [path for path in paths if path not in sys.path]
