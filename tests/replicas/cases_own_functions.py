"""Run in a fresh process: a `tf.function` that an eager step calls, from inside of which replicas would send."""

from __future__ import annotations

import keras
import numpy as np

import tfscale
from tests.training.contract_cases_functions import WeightedInFunction
from tests.training.models import TARGETS, X, sgd


def sending() -> dict[str, str | bool]:
    """How `fit` ends, and whether it left any trace."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(per_replica_batch=8)
    with dp.scope():
        model = dp.prepare(WeightedInFunction())
        model.compile(sgd(), keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"), run_eagerly=True)
        model(X[:1])
    before = model.get_weights()
    try:
        model.fit(X, TARGETS, verbose=0)
    except tfscale.ModelError as error:
        return {"message": str(error), "is unchanged": all(map(np.array_equal, before, model.get_weights()))}
    return {"message": "it trained", "is unchanged": False}
