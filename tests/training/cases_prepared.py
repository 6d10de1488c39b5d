"""Prepared models: their files, their graphs, NaN. Every function runs in a process of its own."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.exact.cases_batch_norm import count_collectives
from tests.training.contract import PlainKeras
from tests.training.models import (
    LABELS,
    TOKENS,
    X,
    classifying,
    cross_entropy,
    mlp,
    normalised,
    sgd,
)
from tfscale.replicas.replica_batch import GlobalBatches


def _data_parallel(num_replicas: int) -> Any:
    if not num_replicas:
        return PlainKeras()
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    return tfscale.DataParallel(global_batch=24)


def _trained(dp: Any, build: Any = normalised, optimizer: Any = None, **fit: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    keras.backend.clear_session()
    with dp.scope():
        model = dp.prepare(build())
        model.compile(**classifying(optimizer)())
    data = {"x": X, "y": LABELS, "batch_size": 24, "shuffle": False, "verbose": 0, **fit}
    model.fit(**data)
    return model


def save(num_replicas: int, directory: str) -> dict[str, Any]:
    """Trains and saves in every format; 0 replicas are plain Keras."""
    dp = _data_parallel(num_replicas)
    model = _trained(dp, optimizer=lambda: sgd(clipnorm=0.1))
    printed = io.StringIO()
    model.summary(print_fn=lambda line: printed.write(line + "\n"))
    model.save(Path(directory, "model.keras"))
    model.save_weights(Path(directory, "model.weights.h5"))
    with contextlib.redirect_stdout(io.StringIO()):
        model.export(str(Path(directory, "exported")), verbose=False)
    with zipfile.ZipFile(Path(directory, "model.keras")) as archive:
        config = json.loads(archive.read("config.json"), object_hook=_without_addresses)
    return {
        "predict": model.predict(X, verbose=0),
        "config": config,
        "summary": printed.getvalue(),
        "is instance": isinstance(model, keras.Sequential),
        "class": type(model).__qualname__,
        "weights": model.get_weights(),
    }


def _without_addresses(config: dict[str, Any]) -> dict[str, Any]:
    """Keras writes the addresses of shared objects."""
    return {name: value for name, value in config.items() if name != "shared_object_id"}


def eager_reads(num_replicas: int) -> dict[str, Any]:
    """How often `fit` and `evaluate` compute a metric outside of the steps, and the logs they give."""
    reads = []

    class Watched(keras.metrics.SparseCategoricalAccuracy):
        """Notes where it is asked."""

        def result(self) -> Any:
            if tf.executing_eagerly():
                reads.append(self.name)
            return super().result()

    dp = _data_parallel(num_replicas)
    keras.utils.set_random_seed(1)
    with dp.scope():
        model = dp.prepare(mlp())
        model.compile(sgd(), cross_entropy(), metrics=[Watched("accuracy")])
    history = model.fit(X, LABELS, batch_size=24, shuffle=False, verbose=0, epochs=2).history
    evaluated = model.evaluate(X, LABELS, batch_size=24, verbose=0)
    return {"reads": len(reads), "history": history, "evaluate": evaluated, "names": list(history)}


def load_without_tfscale(directory: str) -> dict[str, Any]:
    """Predictions from the files in a process that cannot import tfscale."""
    for name in [name for name in sys.modules if name.split(".")[0] == "tfscale"]:
        del sys.modules[name]
    sys.modules["tfscale"] = None
    model = keras.models.load_model(Path(directory, "model.keras"))
    from_weights = normalised()
    from_weights.load_weights(Path(directory, "model.weights.h5"))
    exported = tf.saved_model.load(str(Path(directory, "exported")))
    evaluated = model.evaluate(X, LABELS, verbose=0)
    # It trains on as well, with the optimizer's state.
    model.fit(X, LABELS, batch_size=24, shuffle=False, verbose=0)
    return {
        "keras": keras.models.load_model(Path(directory, "model.keras")).predict(X, verbose=0),
        "weights": from_weights.predict(X, verbose=0),
        "exported": exported.serve(X).numpy(),
        "evaluate": evaluated,
        "trained on": model.get_weights(),
        "tfscale": sys.modules["tfscale"],
    }


def trained_on(num_replicas: int) -> list[np.ndarray]:
    """The weights of two calls of `fit`, nothing saved in between."""
    model = _trained(_data_parallel(num_replicas), optimizer=lambda: sgd(clipnorm=0.1))
    model.fit(X, LABELS, batch_size=24, shuffle=False, verbose=0)
    return model.get_weights()


def collectives(num_replicas: int, kind: str) -> dict[str, int]:
    """Collective operations in the graphs of the train, test and predict functions."""
    dp = _data_parallel(num_replicas)
    if kind == "batch norm":
        model = _trained(dp)
    elif kind == "sparse":
        layers = [keras.layers.Embedding(12, 4), keras.layers.Flatten(), keras.layers.Dense(2)]
        build = lambda: keras.Sequential([keras.Input((6,), dtype="int32"), *layers])  # noqa: E731
        with dp.scope():
            model = dp.prepare(build())
            model.compile(**classifying()())
        model.fit(TOKENS, LABELS, batch_size=24, verbose=0)
    else:
        optimizers = {
            "plain": sgd,
            "clipnorm": lambda: sgd(clipnorm=0.1),
            "accumulation": lambda: sgd(gradient_accumulation_steps=2),
            "watched": sgd,
            "adascale": lambda: tfscale.AdaScaleSGD(0.1, reference_batch=8),
            "loss scale": lambda: keras.optimizers.LossScaleOptimizer(sgd()),
        }
        watches = [tfscale.callbacks.DriftWatch(1)] if kind == "watched" else []
        model = _trained(dp, mlp, optimizers[kind], callbacks=watches)
    x = TOKENS if kind == "sparse" else X
    model.evaluate(x, LABELS, batch_size=24, verbose=0)
    model.predict(x, batch_size=24, verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices((x, LABELS)).batch(24)
    iterator = iter(GlobalBatches(dataset, dp.strategy))
    return {name: count_collectives(_graph(getattr(model, f"{name}_function"), iterator)) for name in ("train", "test")}


def _graph(function: Any, iterator: Any) -> Any:
    """The graph that a Keras train or test function of a prepared model runs."""
    traced = inspect.getclosurevars(inspect.unwrap(function)).nonlocals["run_steps"]._run
    return traced.get_concrete_function(iterator, None).graph


def not_finite(num_replicas: int, value: float, scaled: bool) -> dict[str, Any]:
    """Copies of every variable after a step in which one row of one replica is not finite."""
    dp = _data_parallel(num_replicas)
    optimizer = (lambda: keras.optimizers.LossScaleOptimizer(sgd(), initial_scale=8.0)) if scaled else sgd
    with dp.scope():
        model = dp.prepare(mlp())
        model.compile(optimizer=optimizer(), loss=cross_entropy())
    before = model.get_weights()
    x = X[:24].copy()
    x[-1, 0] = value
    model.fit(x, LABELS[:24], batch_size=24, shuffle=False, verbose=0)
    variables = [*model.trainable_variables, *model.optimizer.variables]
    return {
        "before": before,
        "after": model.get_weights(),
        "copies": [
            [copy.numpy() for copy in dp.strategy.experimental_local_results(variable.value)] for variable in variables
        ],
    }


def copies_after_training(num_replicas: int) -> list[list[np.ndarray]]:
    """Copies of every variable on every replica after an ordinary training."""
    dp = _data_parallel(num_replicas)
    model = _trained(dp, optimizer=lambda: keras.optimizers.Adam(0.01, clipnorm=0.1, use_ema=True))
    variables = [*model.variables, *model.optimizer.variables]
    return [[copy.numpy() for copy in dp.strategy.experimental_local_results(variable.value)] for variable in variables]
