"""What goes with logical replicas and what does not, beyond `cases_logical_replicas`; a process for each call."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.contract import Outcome, arrays_by_name, fitting, observe_fit, state_of
from tests.training.contract_cases_models import OwnComputeLoss
from tests.training.contract_run import run_seeded
from tests.training.models import LABELS, X, classifying, labelled, mlp, normalised, sgd
from tests.training.step.cases_logical_replicas import BATCH, LOGICAL, digest_of


def _own_compute_loss(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(OwnComputeLoss(), check="off" if dp.num_replicas == 1 else "auto")
        model.compile(**classifying(lambda: sgd(use_ema=True, ema_momentum=0.5))())
    return observe_fit(model, labelled(58)(), evaluated=True)


def _in_half_precision(policy: str) -> Callable[[Any], Outcome]:
    def build() -> keras.Model:
        layers = [keras.layers.Dense(16, activation="tanh", dtype=policy), keras.layers.Dropout(0.2, dtype=policy)]
        return keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(2, dtype="float32")])

    def optimizer() -> Any:
        return keras.optimizers.LossScaleOptimizer(sgd()) if policy == "mixed_float16" else sgd()

    return fitting(build, classifying(optimizer), labelled(58), evaluated=True).run


def _watched(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(mlp(lambda: keras.layers.Dropout(0.2)))
        model.compile(**classifying()())
    noise = tfscale.callbacks.NoiseScale(every=1)
    watching = [
        noise,
        tfscale.callbacks.DriftWatch(),
        tfscale.callbacks.NonFiniteWatch(),
        tfscale.callbacks.StallWatch(),
        tfscale.callbacks.ScalingReport(dp.plan, directory=tempfile.mkdtemp()),
    ]
    history = model.fit(**labelled(58)(), shuffle=False, epochs=2, verbose=0, callbacks=watching)
    variances = np.array([row.moments.variance for row in noise.rows])
    return {**state_of(model), "history": arrays_by_name(history.history), "noise": [variances]}


RUNS: dict[str, Callable[[Any], Outcome]] = {
    "own compute_loss, EMA": _own_compute_loss,
    "mixed_float16": _in_half_precision("mixed_float16"),
    "mixed_bfloat16": _in_half_precision("mixed_bfloat16"),
    "callbacks that watch": _watched,
}


def _strategy(num_replicas: int) -> tf.distribute.Strategy:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    return tfscale.make_strategy()


def runs(num_replicas: int, logical_replicas: int | None, *, deterministic: bool = False) -> dict[str, Outcome]:
    """All of `RUNS` on so many devices."""
    strategy = _strategy(num_replicas)
    given = {"global_batch": BATCH, "batch_norm": "local", "seed": 3, "logical_replicas": logical_replicas}
    given |= {"devices": strategy, "deterministic": deterministic}
    return {name: run_seeded(lambda _, run=run: run(tfscale.DataParallel(**given)), None) for name, run in RUNS.items()}


def digests(num_replicas: int) -> dict[str, dict[str, str]]:
    """As `runs`, to the bit: a digest of each array."""
    found = runs(num_replicas, LOGICAL, deterministic=True)
    return {name: {key: digest_of(value) for key, value in outcome.items()} for name, outcome in found.items()}


def synchronized(logical_replicas: int | None, deterministic: bool) -> Outcome:
    """BatchNormalization over all rows, with as many devices as logical replicas."""
    strategy = _strategy(LOGICAL)
    given = {"global_batch": BATCH, "batch_norm": "synchronized", "seed": 3, "logical_replicas": logical_replicas}
    dp = tfscale.DataParallel(devices=strategy, deterministic=deterministic, **given)
    run = fitting(lambda: normalised(momentum=0.7), classifying(), labelled(58), evaluated=True).run
    return run_seeded(lambda _: run(dp), None)


def _error(call: Callable[[], Any]) -> tuple[str, str]:
    try:
        call()
    except tfscale.TfscaleError as error:
        return type(error).__name__, str(error)
    return "no error", ""


class _Contrastive(keras.losses.Loss):
    def call(self, y: Any, y_pred: Any) -> Any:
        del y
        rows = tfscale.gather_rows(y_pred)
        return keras.ops.mean(keras.ops.matmul(y_pred, keras.ops.transpose(rows)), axis=1)


def refused(deterministic: bool) -> dict[str, tuple[str, str]]:
    """The kind and the text of each error."""
    strategy = _strategy(2)
    given = {"global_batch": BATCH, "batch_norm": "local", "seed": 3, "devices": strategy}
    given["deterministic"] = deterministic

    def made(logical_replicas: int = LOGICAL) -> Any:
        return tfscale.DataParallel(logical_replicas=logical_replicas, **given)

    def fitted(logical_replicas: int, *callbacks: Any, **compiled: Any) -> None:
        dp = made(logical_replicas)
        with dp.scope():
            model = dp.prepare(mlp())
            model.compile(**classifying(**compiled)())
        data = dp.dataset((X[:48], LABELS[:48]), shuffle=True)
        model.fit(data, verbose=0, callbacks=list(callbacks))

    def on_others() -> None:
        directory = tempfile.mkdtemp()
        fitted(4, tfscale.callbacks.Recovery(directory))
        fitted(3, tfscale.callbacks.Recovery(directory))

    return {
        "sharding": _error(lambda: made().dataset(X, sharding="files")),
        "gather_rows": _error(lambda: fitted(4, loss=_Contrastive)),
        "Recovery, other logical replicas": _error(on_others),
    }
