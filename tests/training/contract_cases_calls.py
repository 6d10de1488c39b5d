"""Cases of the contract: the other ways to call a model."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.training.contract import Case, Outcome, arrays_by_name, flat_arrays, state_of
from tests.training.models import (
    LABELS,
    WEIGHTS,
    X,
    adam,
    classifying,
    mlp,
    normalised,
    sgd,
)

# Rows of batches, among them fewer than replicas.
_BATCHES = (24, 10, 24, 2, 1, 17)


def _compiled(dp: Any, build: Any = normalised, optimizer: Any = None) -> keras.Model:
    with dp.scope():
        model = dp.prepare(build())
        model.compile(**classifying(optimizer)())
    return model


def _on_batches(dp: Any) -> Outcome:
    model = _compiled(dp, mlp, lambda: sgd(clipnorm=0.05))
    logs, tests, predictions = [], [], []
    for rows in _BATCHES:
        batch = X[:rows], LABELS[:rows]
        logs += arrays_by_name(model.train_on_batch(*batch, return_dict=True))
        tests += flat_arrays(model.test_on_batch(*batch))
        predictions.append(np.array(model.predict_on_batch(X[:rows])))
    return {**state_of(model), "train": logs, "test": tests, "predict": predictions}


def _on_weighted_batches(dp: Any) -> Outcome:
    model = _compiled(dp)
    logs = [
        model.train_on_batch(X[:rows], LABELS[:rows], sample_weight=WEIGHTS[50 : 50 + rows]) for rows in (24, 10, 17)
    ]
    logs.append(model.train_on_batch(X[:24], LABELS[:24], class_weight={0: 0.5, 1: 2.0}))
    return {**state_of(model), "train": flat_arrays(logs)}


def _evaluate_and_predict(dp: Any) -> Outcome:
    model = _compiled(dp)
    outcome: Outcome = {"evaluate": [], "predict": []}
    for rows, batch_size in ((250, 24), (250, 32), (250, 7), (10, 24), (2, 24), (1, 1), (5, 3)):
        data = X[:rows], LABELS[:rows]
        outcome["evaluate"] += flat_arrays(model.evaluate(*data, batch_size, verbose=0))
        outcome["predict"] += flat_arrays(model.predict(X[:rows], batch_size, verbose=0))
    dataset = tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(31)
    outcome["evaluate"] += flat_arrays(model.evaluate(dataset, verbose=0))
    outcome["evaluate"] += flat_arrays(model.evaluate(dataset, steps=3, verbose=0))
    outcome["predict"] += flat_arrays(model.predict(dataset, verbose=0))
    return outcome


def _fit_twice(dp: Any) -> Outcome:
    model = _compiled(dp, mlp, adam)
    kept = {"batch_size": 24, "verbose": 0, "shuffle": False}
    first = model.fit(X, LABELS, epochs=1, **kept)
    second = model.fit(X, LABELS, epochs=3, initial_epoch=1, **kept)
    return {
        **state_of(model),
        "history": arrays_by_name(first.history) + arrays_by_name(second.history),
        "epochs": flat_arrays(second.epoch),
    }


def _compile_again(dp: Any) -> Outcome:
    model = _compiled(dp)
    kept = {"batch_size": 24, "verbose": 0, "shuffle": False}
    model.fit(X, LABELS, **kept)
    with dp.scope():
        model.layers[0].trainable = False
        model.compile(optimizer=adam(clipnorm=0.1), loss=_mean_square, metrics=["accuracy"])
    history = model.fit(X, LABELS, **kept)
    return {**state_of(model), "history": arrays_by_name(history.history)}


def _mean_square(y: Any, y_pred: Any) -> Any:
    return keras.ops.mean(keras.ops.square(keras.ops.cast(y, "float32") - y_pred[:, 0]))


def _prepare_twice(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(dp.prepare(mlp()))
        model.compile(**classifying(lambda: sgd(clipnorm=0.05))())
        dp.prepare(model)
    kept = {"batch_size": 24, "verbose": 0, "shuffle": False}
    model.fit(X, LABELS, **kept)
    dp.prepare(model)
    model.fit(X, LABELS, **kept)
    return {**state_of(model), "evaluate": flat_arrays(model.evaluate(X, LABELS, verbose=0))}


def _predict_unbuilt(dp: Any) -> Outcome:
    """Its weights are made by the first batch that it predicts."""
    with dp.scope():
        model = keras.Sequential([keras.layers.Embedding(7, 4), keras.layers.Flatten(), keras.layers.Dense(2)])
        model.compile(sgd(), "mse")
    tokens = (np.abs(X[:50, :3]) * 10).astype("int32") % 7
    before = model.predict(tokens, batch_size=24, verbose=0)
    dp.prepare(model).fit(tokens, X[:50, :2], batch_size=24, verbose=0, shuffle=False)
    return {**state_of(model), "predict": flat_arrays([before, model.predict(tokens, batch_size=24, verbose=0)])}


def _prepare_frozen(dp: Any) -> Outcome:
    """Without another `compile`, Keras goes on with the step that it has traced."""
    model = _compiled(dp)
    kept = {"batch_size": 24, "verbose": 0, "shuffle": False}
    model.fit(X, LABELS, **kept)
    model.layers[0].trainable = False
    dp.prepare(model)
    history = model.fit(X, LABELS, **kept)
    return {**state_of(model), "history": arrays_by_name(history.history)}


def _batch_size_filled_in(dp: Any) -> Outcome:
    """`DataParallel` fills in the global batch where Keras would take 32."""
    model = _compiled(dp, mlp)
    given = {"batch_size": 24} if dp.num_replicas == 1 else {}
    model.fit(X, LABELS, verbose=0, shuffle=False, **given)
    return state_of(model)


def _stopped_early(dp: Any) -> Outcome:
    model = _compiled(dp, mlp)
    stop = keras.callbacks.EarlyStopping("loss", patience=1, restore_best_weights=True)
    model.fit(
        X,
        LABELS,
        batch_size=24,
        epochs=4,
        verbose=0,
        shuffle=False,
        callbacks=[stop, keras.callbacks.TerminateOnNaN()],
    )
    return state_of(model)


def _set_weights(dp: Any) -> Outcome:
    model = _compiled(dp)
    model.set_weights([np.cos(np.arange(w.size)).reshape(w.shape) ** 2 for w in model.get_weights()])
    model.fit(X, LABELS, batch_size=24, verbose=0, shuffle=False)
    model.reset_metrics()
    return {**state_of(model), "metrics": arrays_by_name(model.get_metrics_result())}


CASES: dict[str, Case] = {
    "train, test and predict on batch": Case(_on_batches),
    "train_on_batch with weights": Case(_on_weighted_batches),
    "evaluate and predict, any batch": Case(_evaluate_and_predict),
    "predict before anything is built": Case(_predict_unbuilt),
    "fit twice, initial_epoch": Case(_fit_twice),
    "compile again between fits": Case(_compile_again),
    "prepare is idempotent": Case(_prepare_twice),
    "prepare again, frozen meanwhile": Case(_prepare_frozen),
    "batch_size filled in": Case(_batch_size_filled_in),
    "callbacks of Keras": Case(_stopped_early),
    "set_weights and reset_metrics": Case(_set_weights),
}
