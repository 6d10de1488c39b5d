"""Cases of the check of the first step, each in a process of its own."""

from __future__ import annotations

import logging
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.contract_cases_anywhere import (
    DATA,
    REFUSED,
    ClippedAfterTape,
    ClippedByHand,
    DrawsBeside,
    MixesOutside,
    ModuleLoss,
)
from tests.training.models import adam, sgd


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []
        logging.getLogger("tfscale").addHandler(self)
        logging.getLogger("tfscale").setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record.getMessage())


def _data_parallel(num_replicas: int = 3) -> tfscale.DataParallel:
    if tfscale.resolve_cluster().num_workers == 1:
        tfscale.simulate_replicas(num_replicas)
    keras.utils.set_random_seed(1)
    return tfscale.DataParallel(global_batch=24)


def _state(model: keras.Model) -> list[np.ndarray]:
    variables = [*model.variables, *model.optimizer.variables]
    local = model.distribute_strategy.experimental_local_results
    return [np.asarray(copy) for variable in variables for copy in local(variable.value)]


def refused(name: str) -> dict[str, Any]:
    """The error of a program that cannot be divided, and whether it left any trace."""
    build, _ = REFUSED[name]
    dp = _data_parallel()
    with dp.scope():
        model = dp.prepare(build())
        model.compile(adam(learning_rate=0.05), run_eagerly=True)
        model(DATA["x"][:1])
    model.optimizer.build(model.trainable_variables)
    before = _state(model)
    try:
        model.fit(**DATA, verbose=0, shuffle=False)
    except tfscale.ParityError as error:
        return {"message": str(error), "is unchanged": all(map(np.array_equal, before, _state(model)))}
    return {"message": "", "is unchanged": False}


def modes(mode: str) -> dict[str, Any]:
    """What another mode makes of a program that cannot be divided."""
    messages, dp = _Messages(), _data_parallel()
    with dp.scope():
        model = dp.prepare(REFUSED["centred on own rows"][0](), check=mode)
        model.compile(sgd(), run_eagerly=True)
    history = model.fit(**DATA, epochs=1, verbose=0, shuffle=False)
    return {"trained": len(history.epoch), "warnings": [each for each in messages.kept if "is not that of one" in each]}


def on_workers() -> str:
    """The error that each of several workers ends with."""
    dp = _data_parallel()
    with dp.scope():
        model = dp.prepare(REFUSED["centred on own rows"][0]())
        model.compile(sgd(), run_eagerly=True)
    try:
        model.fit(**DATA, verbose=0, shuffle=False)
    except tfscale.ParityError as error:
        return str(error)
    return ""


def summed_where_read() -> dict[str, list[str]]:
    """What the log says of a step that works on gradients, with and without `sum_gradients`."""
    dp, found = _data_parallel(), {}
    for name, build in (("as it stands", ClippedAfterTape), ("with sum_gradients", ClippedByHand)):
        messages = _Messages()
        with dp.scope():
            model = dp.prepare(build())
            model.compile(sgd())
        model.fit(**DATA, epochs=1, verbose=0, shuffle=False)
        found[name] = [each for each in messages.kept if "tfscale.sum_gradients" in each]
    return found


def divided_by_calls() -> dict[str, Any]:
    """How many rows layers get of a batch of 24 that the step mixes, and what is said of it."""
    messages, dp = _Messages(), _data_parallel()
    with dp.scope():
        model = dp.prepare(MixesOutside())
        model.compile(sgd())
    model.fit(**DATA, epochs=1, verbose=0, shuffle=False)
    with dp.scope():
        drawing = dp.prepare(DrawsBeside())
        drawing.compile(sgd())
    try:
        drawing.fit(**DATA, verbose=0, shuffle=False)
        error = ""
    except tfscale.ParityError as refused:
        error = str(refused)
    said = [each for each in messages.kept if "mixes the rows" in each]
    return {"most": max(model.counts.seen), "said": said, "drawing": error}


def checked_once() -> dict[str, int]:
    """How many looks at a step there are, in several calls of `fit`."""
    from tfscale.training.state import State

    put_back, count = State.put_back, []

    def counted(self: State) -> Any:
        count.append(1)
        return put_back(self)

    State.put_back = counted  # type: ignore[method-assign]
    dp = _data_parallel()
    found = {}
    with dp.scope():
        stock = dp.prepare(keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)]))
        stock.compile(sgd(), "mse", metrics=["mae"])
        own = dp.prepare(ModuleLoss())
        own.compile(sgd())
    for name, model in (("stock", stock), ("own", own)):
        for when in ("first", "second"):
            count.clear()
            model.fit(**DATA, verbose=0)
            found[f"{name}, {when} fit"] = len(count)
    with dp.scope():
        own.compile(adam())
    count.clear()
    own.fit(**DATA, verbose=0)
    found["own, compiled anew"] = len(count)
    return found


def steps_per_call() -> list[float]:
    """The losses of a program that is looked at and takes several steps per call."""
    dp = _data_parallel()
    with dp.scope():
        model = dp.prepare(ModuleLoss())
        model.compile(sgd(), steps_per_execution=2)
    history = model.fit(**DATA, epochs=3, verbose=0, shuffle=False)
    return [float(value) for value in history.history["under another name"]] + [int(model.optimizer.iterations.numpy())]


def plain_steps() -> list[float]:
    """The same on one device."""
    keras.utils.set_random_seed(1)
    model = ModuleLoss()
    model.compile(sgd(), steps_per_execution=2)
    history = model.fit(**DATA, epochs=3, verbose=0, shuffle=False)
    return [float(value) for value in history.history["under another name"]] + [int(model.optimizer.iterations.numpy())]


def answers() -> dict[str, Any]:
    """How many replicas whom is told of, in a step and outside of it."""
    dp = _data_parallel()
    told: dict[str, Any] = {"outside": dp.strategy.num_replicas_in_sync}

    class Asking(ModuleLoss):
        def train_step(self, data: Any) -> Any:
            context = tf.distribute.get_replica_context()
            told["strategy"] = tf.distribute.get_strategy().num_replicas_in_sync
            told["context"] = context.num_replicas_in_sync
            return super().train_step(data)

    with dp.scope():
        model = dp.prepare(Asking(), check="off")
        model.compile(sgd())
        loose = {"optimizer": adam(), "metric": keras.metrics.Mean()}
    model.fit(**DATA, verbose=0)
    from tfscale.training.made import made_under

    made = made_under(dp.strategy)
    told["seen"] = [any(loose["optimizer"] is each for each in made.optimizers)]
    told["seen"] += [any(loose["metric"] is each for each in made.metrics)]
    told["hooked"] = "update_state" in vars(loose["metric"])
    told["afterwards"] = dp.strategy.num_replicas_in_sync
    told["numbers"] = [float(model.optimizer.learning_rate), int(model.optimizer.iterations)]

    return told


def assigned_only() -> tuple[int, int]:
    """What a variable counts that a step never reads, and how many steps there were."""
    dp = _data_parallel()

    class Counting(ModuleLoss):
        def __init__(self) -> None:
            super().__init__()
            self.count = tf.Variable(0, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

        def train_step(self, data: Any) -> Any:
            self.count.assign_add(1, read_value=False)
            return super().train_step(data)

    with dp.scope():
        model = dp.prepare(Counting())
        model.compile(sgd())
    model.fit(**DATA, verbose=0)
    return int(model.count.numpy()), int(model.optimizer.iterations.numpy())


class _Counted(keras.callbacks.Callback):
    """Leaves counts behind at an epoch's start, as a training that goes on in mid-epoch does."""

    def __init__(self, metric: keras.metrics.Metric) -> None:
        super().__init__()
        self.metric = metric

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        del logs
        if batch == 0:
            first = self.metric.variables[0].value
            dp_copies = tf.distribute.get_strategy().experimental_local_results(first)
            for copy, value in zip(dp_copies, (7.0, 0.0, 3.0), strict=False):
                copy.assign(value)


def counted_before() -> dict[str, Any]:
    """A step is looked at with counts and accumulated gradients that are not those of a new epoch."""
    dp = _data_parallel()
    with dp.scope():
        model = dp.prepare(ModuleLoss(), check="always")
        metric = keras.metrics.Sum()
        model.counted = metric
        model.compile(sgd(gradient_accumulation_steps=4))
        metric.update_state(0.0)
        history = model.fit(**DATA, epochs=1, verbose=0, shuffle=False, callbacks=[_Counted(metric)])
        # Where the steps of an epoch are not a multiple of four, accumulated gradients are left.
        model.compile(model.optimizer)
        again = model.fit(**DATA, epochs=1, verbose=0, shuffle=False, callbacks=[_Counted(metric)])
    return {"trained": len(history.epoch) + len(again.epoch), "left": float(metric.result())}


class ClipsLate(ModuleLoss):
    """Clips by hand, by more than the gradients of ordinary rows have."""

    def changed(self, gradients: Any) -> Any:
        return tf.clip_by_global_norm(gradients, 50.0)[0]


def later(outlier: int) -> tuple[str, int]:
    """The error of a step that is that of one replica until an outlier comes, and the updates that were made."""
    dp = _data_parallel()
    with dp.scope():
        model = dp.prepare(ClipsLate())
        model.compile(sgd(learning_rate=1e-3, momentum=0.0))
    x, y = (np.tile(DATA[name], (8, 1))[: 24 * 8] for name in ("x", "y"))
    y[24 * outlier :] *= 1e4
    try:
        model.fit(x, y, batch_size=24, verbose=0, shuffle=False)
    except tfscale.ParityError as error:
        return str(error), int(model.optimizer.iterations.numpy())
    return "", int(model.optimizer.iterations.numpy())
