"""Runs that are interrupted and continued, beside the same run in one go. Every function runs in a process of its own.

The plug is pulled by an exception here: two strategies in a process do not get on, but many models under one do.
"""

import dataclasses
import pathlib
import random
import tempfile
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.models import ScheduleWithoutConfig

BATCH = 8
EXAMPLES = 44  # 6 steps an epoch, the last one of 4 examples
STEPS = 6


class PlugError(Exception):
    """Somebody pulled the plug."""


class Plug(keras.callbacks.Callback):
    """Pulls the plug before the n-th call of the train function of this `fit`; None never does."""

    def __init__(self, call):
        super().__init__()
        self._left = call

    def on_train_batch_begin(self, batch, logs=None):
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise PlugError


class Counting(keras.callbacks.Callback):
    """A user's callback with a state of its own."""

    def __init__(self):
        super().__init__()
        self.batches = []
        self.draws = []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append(batch)
        self.draws.append((random.random(), float(np.random.rand())))

    def get_state(self):
        return {"batches": self.batches, "draws": self.draws}

    def set_state(self, state):
        self.batches, self.draws = state["batches"], [tuple(each) for each in state["draws"]]


@dataclasses.dataclass
class Recipe:
    """What differs from case to case."""

    data: Callable[[Any], Any]
    epochs: int = 3
    auto: bool = False
    every_steps: int = 1
    plugs: tuple[int, ...] = (8,)
    compile: dict[str, Any] = dataclasses.field(default_factory=dict)
    fit: dict[str, Any] = dataclasses.field(default_factory=dict)
    validation: Callable[[Any], Any] | None = None
    optimizer: Callable[[], Any] = lambda: keras.optimizers.SGD(0.05, momentum=0.9)
    layers: Callable[[], list[Any]] = list
    callbacks: Callable[[], list[Any]] = list


def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(EXAMPLES, 3)).astype("float32")
    return x, (x.sum(axis=1) > 0).astype("float32")


def shuffled(dp):
    return dp.dataset(rows(), shuffle=True)


def noisy(example, seed):
    x, y = example
    return x + 0.1 * tf.random.stateless_normal(x.shape, seed), y


def unknown_length(dp):
    return tf.data.Dataset.from_tensor_slices(rows()).filter(lambda x, y: True).batch(BATCH)


RECIPES = {
    "in the middle of an epoch": Recipe(shuffled),
    "between two epochs": Recipe(shuffled, plugs=(12,)),
    "three times, saved a step before": Recipe(shuffled, every_steps=2, plugs=(4, 3, 5)),
    "random augmentation, validation too": Recipe(
        lambda dp: dp.dataset(rows(), map_fn=noisy, shuffle=True),
        validation=lambda dp: dp.dataset(rows(), map_fn=noisy),
        plugs=(14,),
    ),
    "dropout, batch norm": Recipe(
        shuffled, layers=lambda: [keras.layers.BatchNormalization(momentum=0.8), keras.layers.Dropout(0.3)]
    ),
    "Adam, EMA, a schedule of one's own": Recipe(
        shuffled, optimizer=lambda: keras.optimizers.Adam(ScheduleWithoutConfig(), use_ema=True, ema_momentum=0.9)
    ),
    "accumulation": Recipe(
        shuffled, optimizer=lambda: keras.optimizers.SGD(0.05, momentum=0.9, gradient_accumulation_steps=3), plugs=(7,)
    ),
    "steps_per_execution": Recipe(shuffled, compile={"steps_per_execution": 4}, plugs=(3,)),
    # However many steps the calls take, there are 12 calls: 5 in the first epoch, and one in each of the others.
    "steps_per_execution, chosen": Recipe(shuffled, epochs=8, every_steps=2, plugs=(10,), auto=True),
    "steps_per_epoch": Recipe(shuffled, fit={"steps_per_epoch": 3}, epochs=5, plugs=(10,)),
    "arrays, in order": Recipe(lambda dp: rows(), fit={"shuffle": False}),
    "tf.data": Recipe(lambda dp: tf.data.Dataset.from_tensor_slices(rows()).batch(BATCH)),
    "data without an order": Recipe(
        lambda dp: tf.data.Dataset.from_tensor_slices(rows()).shuffle(EXAMPLES, seed=1).batch(BATCH), plugs=(8,)
    ),
    "callbacks that count": Recipe(
        shuffled,
        epochs=6,
        plugs=(20, 9),
        validation=lambda dp: rows(),
        callbacks=lambda: [
            keras.callbacks.EarlyStopping("loss", patience=3, restore_best_weights=True),
            keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=0.05),
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
            Counting(),
        ],
    ),
    "stopped early": Recipe(
        shuffled,
        epochs=9,
        plugs=(8,),
        callbacks=lambda: [keras.callbacks.EarlyStopping("loss", patience=1, min_delta=9.0)],
    ),
}


def one_go_and_interrupted(num_replicas: int, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The outcomes of a run, and of one whose plug was pulled as often as the recipe says."""
    recipe = RECIPES[name]
    chosen = {"steps_per_execution": "always"} if recipe.auto else {}
    dp = data_parallel(num_replicas, global_batch=BATCH, **chosen)
    with tempfile.TemporaryDirectory() as directory:
        one_go = fit(dp, recipe, None, plug=None, seed=1)
        # Other weights, and other random numbers: all that is alike comes from the checkpoint.
        for attempt, plug in enumerate(recipe.plugs):
            try:
                fit(dp, recipe, directory, plug=plug, seed=1 if attempt == 0 else 100 + attempt)
            except PlugError:
                continue
            raise AssertionError(f"attempt {attempt} came to its end")
        return one_go, fit(dp, recipe, directory, plug=None, seed=99)


def interrupted(num_replicas: int, name: str, directory: str) -> None:
    """A run that ends in mid-epoch, for another process to continue."""
    recipe = RECIPES[name]
    try:
        fit(data_parallel(num_replicas, global_batch=BATCH), recipe, directory, plug=recipe.plugs[0], seed=1)
    except PlugError:
        return
    raise AssertionError("it came to its end")


def continued(num_replicas: int, name: str, directory: str) -> dict[str, Any]:
    """The outcome of what another process began."""
    return fit(data_parallel(num_replicas, global_batch=BATCH), RECIPES[name], directory, plug=None, seed=99)


def data_parallel(num_replicas, **arguments):
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    # One per process: the second of a process gets the same replicas.
    if not _STRATEGY:
        _STRATEGY.append(tfscale.make_strategy())
    return tfscale.DataParallel(**arguments, devices=_STRATEGY[0])


_STRATEGY: list[tf.distribute.Strategy] = []


def fit(dp, recipe, directory, *, plug, seed):
    keras.utils.set_random_seed(seed)
    with dp.scope():
        layers = [keras.Input((3,)), keras.layers.Dense(8, activation="gelu"), *recipe.layers(), keras.layers.Dense(1)]
        model = dp.prepare(keras.Sequential(layers))
        model.compile(recipe.optimizer(), "mse", metrics=["mae"], **recipe.compile)
    counting = recipe.callbacks()
    callbacks = [*counting, Plug(plug)]
    if directory is not None:
        callbacks.insert(0, tfscale.callbacks.Recovery(directory, every_steps=recipe.every_steps))
    data = recipe.data(dp)
    arguments = {"x": data} if not isinstance(data, tuple) else dict(zip("xy", data, strict=True))
    if recipe.validation is not None:
        arguments["validation_data"] = recipe.validation(dp)
    history = model.fit(**arguments, **recipe.fit, epochs=recipe.epochs, verbose=0, callbacks=callbacks)
    return {
        "weights": [np.array(each) for each in model.get_weights()],
        "optimizer": [keras.ops.convert_to_numpy(each) for each in model.optimizer.variables],
        "epochs": history.epoch,
        "history": {name: [float(each) for each in values] for name, values in history.history.items()},
        "counted": [_counters(each) for each in counting],
    }


def _counters(callback):
    names = ("wait", "best", "best_epoch", "stopped_epoch", "cooldown_counter", "batches", "draws")
    return {name: getattr(callback, name) for name in names if hasattr(callback, name)}


def larger_batch(num_replicas: int) -> dict[str, Any]:
    """A run saved after one epoch and 3 steps of batch 4 (12 steps an epoch) goes on with batch 8."""
    recipe = dataclasses.replace(RECIPES["in the middle of an epoch"], plugs=(14,), epochs=2)
    found: dict[str, Any] = {}

    def grown(batch: int) -> tfscale.DataParallel:
        return data_parallel(num_replicas, global_batch=batch, recipe=tfscale.Recipe(reference_batch=4))

    with tempfile.TemporaryDirectory() as directory:
        try:
            _fit_grown(grown(4), recipe, directory, 14, found)
        except PlugError:
            found["old"] = found.pop("steps")
        _fit_grown(grown(8), recipe, directory, None, found)
    return found


class _Steps(keras.callbacks.Callback):
    def __init__(self, found):
        super().__init__()
        self._found = found.setdefault("steps", [])

    def on_train_batch_begin(self, batch, logs=None):
        optimizer = self.model.optimizer
        self._found.append((batch, int(optimizer.iterations.numpy()), float(optimizer.learning_rate)))


def _fit_grown(dp, recipe, directory, plug, found):
    keras.utils.set_random_seed(1)
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
        decay = keras.optimizers.schedules.PolynomialDecay(0.1, 100, end_learning_rate=0.0)
        model.compile(keras.optimizers.SGD(dp.schedule(decay) if dp.batch_ratio == 1 else _linear(dp, decay)), "mse")
    recovery = tfscale.callbacks.Recovery(directory, every_steps=1)
    model.fit(shuffled(dp), epochs=2, verbose=0, callbacks=[recovery, _Steps(found), Plug(plug)])


def _linear(dp, decay):
    return tfscale.ReplicaSchedule(decay, dp.batch_ratio, rule="linear")


def refusals() -> dict[str, str]:
    """The messages of what recovery refuses."""
    dp = data_parallel(1, global_batch=BATCH)
    recipe = dataclasses.replace(RECIPES["in the middle of an epoch"], epochs=1)
    wider = dataclasses.replace(recipe, layers=lambda: [keras.layers.Dense(5, name="wide")])
    adam = dataclasses.replace(recipe, optimizer=lambda: keras.optimizers.Adam(0.01))
    messages = {}
    with tempfile.TemporaryDirectory() as directory:
        fit(dp, recipe, directory, plug=None, seed=1)
        for name, other in (("a layer more", wider), ("another optimizer", adam), ("a second fit", recipe)):
            messages[name] = _refused(lambda other=other: fit(dp, other, directory, plug=None, seed=1))
        for path in pathlib.Path(directory).rglob("*.index"):
            path.write_bytes(b"")
        messages["nothing to be read"] = _refused(lambda: fit(dp, recipe, directory, plug=None, seed=1))
        two = [tfscale.callbacks.Recovery(directory), tfscale.callbacks.Recovery(directory)]
        twice = dataclasses.replace(recipe, callbacks=lambda: two)
        messages["two of them"] = _refused(lambda: fit(dp, twice, None, plug=None, seed=1))
    return messages


def _refused(action):
    try:
        action()
    except tfscale.RecoveryError as error:
        return str(error)
    return "not refused"
