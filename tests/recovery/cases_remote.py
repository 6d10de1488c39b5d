"""Runs whose state is in a store. Every function runs in a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.recovery.cases_directory import Inside
from tests.recovery.cases_order import listening
from tests.recovery.cases_resume import BATCH, RECIPES, PlugError, data_parallel, fit

RECIPE = dataclasses.replace(RECIPES["in the middle of an epoch"], epochs=2)


@contextlib.contextmanager
def told() -> Iterator[list[str]]:
    """All that the library logs meanwhile."""
    log = logging.getLogger("tfscale")
    log.setLevel(logging.INFO)
    with listening() as said:
        yield said
    log.setLevel(logging.NOTSET)


def on_ram() -> dict[str, Any]:
    """A run in one go, and one of the same process whose plug is pulled in mid-epoch."""
    dp = data_parallel(1, global_batch=BATCH)
    one_go = fit(dp, RECIPE, None, plug=None, seed=1)
    try:
        fit(dp, RECIPE, "ram://tests/run", plug=8, seed=1)
    except PlugError:
        with told() as said:
            continued = fit(dp, RECIPE, "ram://tests/run", plug=None, seed=9)
        return {"one go": one_go, "continued": continued, "said": said}
    raise AssertionError("it came to its end")


def inside_of_a_run() -> str:
    """What is said of a second `fit` in the midst of a first one."""
    callback = Inside("ram://tests/inside")
    dp = data_parallel(1, global_batch=BATCH)
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
        model.compile("sgd", "mse")
    data = RECIPE.data(dp)
    model.fit(data, verbose=0, callbacks=[tfscale.callbacks.Recovery("ram://tests/inside"), callback])
    return callback.refused


def with_the_callbacks_of_dp() -> dict[str, str]:
    """What `dp.callbacks` leaves in a store, and in one of a name that means a folder of this host."""
    dp = data_parallel(1, global_batch=BATCH)
    for _ in range(2):
        with dp.scope():
            model = dp.prepare(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
            model.compile("sgd", "mse")
        epochs = int(tf.io.gfile.exists("ram://tests/all")) + 2
        model.fit(RECIPE.data(dp), epochs=epochs, verbose=0, callbacks=dp.callbacks("ram://tests/all"))
    here = sorted(path.name for path in pathlib.Path().iterdir())
    assert [name for name in here if name.startswith("ram")] == []
    with tf.io.gfile.GFile("ram://tests/all/scaling.csv") as file:
        return {"csv": file.read(10_000), "scaling": str(tf.io.gfile.glob("ram://tests/all/scaling/*"))}


def begin(directory: str) -> None:
    """Is killed at some moment."""
    fit(data_parallel(1, global_batch=BATCH), RECIPE, directory, plug=None, seed=1)


def go_on(directory: str) -> dict[str, Any]:
    """A run in one go, and what becomes of one that another process began."""
    dp = data_parallel(1, global_batch=BATCH)
    one_go = fit(dp, RECIPE, None, plug=None, seed=1)
    start_s = time.monotonic()
    with told() as said:
        continued = fit(dp, RECIPE, directory, plug=None, seed=9)
    return {"one go": one_go, "continued": continued, "said": said, "seconds": time.monotonic() - start_s}


def refused(names: tuple[str, ...]) -> dict[str, tuple[str, float]]:
    """What is said of directories, and after how many seconds."""
    dp = data_parallel(1, global_batch=BATCH)
    found = {}
    for name in names:
        start_s = time.monotonic()
        try:
            fit(dp, RECIPE, name, plug=None, seed=1)
            found[name] = ("not refused", time.monotonic() - start_s)
        except tfscale.RecoveryError as error:
            found[name] = (str(error), time.monotonic() - start_s)
    return found


def with_a_store_that_fails(directory: str) -> dict[str, Any]:
    """A run whose store refuses some saves, beside one that saves nothing."""
    dp = data_parallel(1, global_batch=BATCH)
    one_go = fit(dp, RECIPE, None, plug=None, seed=1)
    with told() as said:
        saving = fit(dp, RECIPE, directory, plug=None, seed=1)
    return {"one go": one_go, "saving": saving, "said": said}


def on_workers(directory: str) -> dict[str, Any]:
    """What each worker finds in its own memory: of a run, of one whose checkpoints cannot be read, and unlike ones."""
    dp = data_parallel(1, global_batch=BATCH)
    fit(dp, RECIPE, directory, plug=None, seed=1)
    found = {"objects": tf.io.gfile.glob(f"{directory}/epochs/*.json"), "refused": ""}
    if dp.is_chief:
        for path in tf.io.gfile.glob([f"{directory}/*.json", f"{directory}/epochs/*.json"]):
            tf.io.gfile.remove(path)
            with tf.io.gfile.GFile(path, "w") as file:
                file.write("{")
    try:
        fit(dp, dataclasses.replace(RECIPE, epochs=3), directory, plug=None, seed=1)
    except tfscale.RecoveryError as error:
        found["refused"] = str(error)
    return found | {"unlike": _unlike(dp)}


def _unlike(dp: tfscale.DataParallel) -> dict[str, str]:
    """What is said where the workers do not save alike."""
    recovery = tfscale.callbacks.Recovery
    kinds = {
        "chief alone": [recovery("ram://tests/unlike", every_steps=3)] if dp.is_chief else [],
        "by rank": [recovery("ram://tests/unlike", every_steps=3 + dp.rank)],
        "by time": [recovery("ram://tests/unlike", **({"every_s": 9.0} if dp.is_chief else {"every_steps": 3}))],
        "ChiefOnly": [tfscale.callbacks.ChiefOnly(recovery("ram://tests/unlike"))],
    }
    found = {}
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
        model.compile("sgd", "mse")
    for name, callbacks in kinds.items():
        try:
            model.fit(np.ones((BATCH, 1)), np.ones(BATCH), verbose=0, callbacks=callbacks)
        except tfscale.RecoveryError as error:
            found[name] = str(error)
    # Nothing was begun, and all go on together.
    model.fit(np.ones((BATCH, 1)), np.ones(BATCH), verbose=0)
    return found
