"""How large is the noise scale of a user's model on its data?"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

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
# The first steps make the graph; after so many seconds three are enough.
_UNTIMED, _TIMED, _TIMED_S = 2, 9, 3.0


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

    On the devices that are here. One replica takes its rows in four micro-steps; so does each of a few. Then plain
    steps of one replica are timed at four batches, and their seconds written beside the trace.

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
    if path is not None:
        times = time_steps(functions[0](), user_data.first_batch, max(1, batch // replicas))
        device = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        # The run may have been shorter than an epoch.
        examples = batch * user_data.facts.num_steps
        _add_beside(path, {"step_times": times, "device": device, "examples_per_epoch": examples})
    return noise


def time_steps(model: keras.Model, batch: Any, examples: int) -> dict[str, float]:
    """Seconds of plain steps on one device, by their examples: a quarter, half, all and twice of so many.

    Those that do not fit into the device are left out.

    Args:
        model: Compiled; it is trained.
        batch: `x`, `(x, y)` or `(x, y, sample_weight)`, of which rows are taken, again and again where there are fewer.
        examples: Of a step of one replica.
    """
    parts = batch if isinstance(batch, tuple) else (batch,)
    found = {}
    for wanted in sorted({max(1, examples // 4), max(1, examples // 2), examples, 2 * examples}):

        def take(part: Any, wanted: int = wanted) -> Any:
            return tf.gather(part, tf.range(wanted) % len(part))

        try:
            rows = tf.nest.map_structure(take, parts)
            times: list[float] = []
            for _ in range(_UNTIMED + _TIMED):
                begun_s = time.perf_counter()
                model.train_on_batch(*rows)
                times.append(time.perf_counter() - begun_s)
                if len(times) > _UNTIMED + 2 and sum(times) > _TIMED_S:
                    break
        except tf.errors.ResourceExhaustedError:
            break
        found[str(wanted)] = statistics.median(times[_UNTIMED:])
    return found


def _add_beside(path: str | os.PathLike[str], more: dict[str, Any]) -> None:
    beside = Path(f"{os.fspath(path).removesuffix('.csv')}.json")
    # A store has no such file.
    if beside.is_file():
        part = beside.with_name(f"{beside.name}.part")
        part.write_text(json.dumps(json.loads(beside.read_text(encoding="utf-8")) | more, indent=1) + "\n", "utf-8")
        part.replace(beside)


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
