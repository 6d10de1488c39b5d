"""Every kind of source and order, on replicas and on workers. Runs in processes of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.data.example_rows import EPOCHS, GLOBAL_BATCH, IDS, Items, X, Y, make_model, noting
from tests.training.contract import observe_fit
from tfscale.data import dataset


def _sources(directory: str) -> dict[str, Any]:
    arrays = ((X, IDS), Y)
    on_disk = np.memmap(Path(directory, f"{os.getpid()}.bin"), "float32", "w+", shape=X.shape)
    on_disk[:] = X
    return {
        "arrays": arrays,
        "memmap": ((on_disk, IDS), Y),
        "stream": tf.data.Dataset.from_tensor_slices(arrays),
        "PyDataset": Items(),
    }


def run(num_replicas: int, directory: str, variants: Mapping[str, Any], ways: Mapping[str, Any]) -> dict[str, Any]:
    """Kinds of sources and orders: what a model becomes, and which examples `map_fn` was called on here.

    Args:
        num_replicas: Logical CPUs; 0 where TF_CONFIG says who there is.
        directory: Of this process, for files.
        variants: Name to `worker_load`, or to "as on GPUs" for the way in which GPUs get their batches.
        ways: Name of a variant to the names of its sources and orders.
    """
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, seed=3)
    model, sources = make_model(dp), _sources(directory)
    with dp.scope():
        model.optimizer.build(model.trainable_variables)
    initial = [np.array(keras.ops.convert_to_numpy(each)) for each in _variables(model)]
    found: dict[str, Any] = {}
    for variant, given in variants.items():
        is_on_gpus = given == "as on GPUs"
        # The test of the devices is all that differs.
        dataset.on_gpus = lambda strategy, answer=is_on_gpus: answer
        for name in ways[variant]:
            source, _, order = name.partition(", ")
            for variable, value in zip(_variables(model), initial, strict=True):
                variable.assign(value)
            load = None if is_on_gpus else given
            found[f"{variant}: {name}"] = _observe(dp, model, sources[source], order == "shuffled", load)
    return found


def _variables(model: keras.Model) -> list[keras.Variable]:
    """Weights and optimizer state: one model serves all, which saves most of the time."""
    return [*model.weights, *model.optimizer.variables]


def _observe(dp: Any, model: keras.Model, source: Any, shuffle: bool, load: Any) -> dict[str, Any]:
    seen: list[int] = []
    data = dp.dataset(source, map_fn=noting(seen), shuffle=shuffle, worker_load=load)
    observed = observe_fit(model, {"x": data}, epochs=EPOCHS)
    ordered = dp.dataset(source, map_fn=noting([]), worker_load=load)
    return {
        "observed": observed,
        "mapped": list(seen),
        "steps": len(data),
        "predict": model.predict(ordered, verbose=0),
        "evaluate": model.evaluate(ordered, verbose=0),
    }
