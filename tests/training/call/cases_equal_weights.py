"""What calls say of weights that one worker alone has loaded. Runs in each worker."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import tfscale

X = np.linspace(-1.0, 1.0, 48).reshape(12, 4).astype("float32")
Y = X[:, :1]


def calls() -> dict[str, Any]:
    """By call, what is said, and whether the weights are as they were; then the same where all have loaded them."""
    dp = tfscale.DataParallel(global_batch=6, seed=1)
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2), keras.layers.Dense(1)]))
        model.compile("sgd", "mse")
    weights = model.get_weights()
    kinds = {
        "fit": lambda: model.fit(X, Y, batch_size=6, verbose=0),
        "evaluate": lambda: model.evaluate(X, Y, batch_size=6, verbose=0),
        "predict": lambda: model.predict(X, batch_size=6, verbose=0),
        "train_on_batch": lambda: model.train_on_batch(X, Y),
        "test_on_batch": lambda: model.test_on_batch(X, Y),
        "predict_on_batch": lambda: model.predict_on_batch(X),
    }
    found: dict[str, Any] = {}
    for name, call in kinds.items():
        for loaded in ("by one", "by all"):
            given = [each * (2 + (dp.rank if loaded == "by one" else 0)) for each in weights]
            model.set_weights(given)
            try:
                call()
                found[f"{name}, {loaded}"] = "no error", True
            except tfscale.DriftError as error:
                same = [np.array_equal(*pair) for pair in zip(model.get_weights(), given, strict=True)]
                found[f"{name}, {loaded}"] = str(error), all(same)
    return found
