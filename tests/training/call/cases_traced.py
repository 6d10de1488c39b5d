"""Steps that TensorFlow optimises, and steps that it runs as they were traced. Every function has its own process."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import tfscale
from tfscale.training.call import traced


def trained(most_operations: int, device_types: tuple[str, ...]) -> dict[str, Any]:
    """What two replicas have learnt, evaluated and predicted, and for how many functions the graph was left alone.

    Args:
        most_operations: Of a step that TensorFlow optimises.
        device_types: What `leaves_graph_alone` may be asked for.
    """
    answers = []
    decide = traced.leaves_graph_alone

    def noted(num_operations: int, kinds: Any) -> bool:
        assert tuple(kinds) == device_types
        answers.append(decide(num_operations, kinds))
        return answers[-1]

    traced._MOST_OPERATIONS, traced.leaves_graph_alone = most_operations, noted
    tfscale.simulate_replicas(len(device_types))
    dp = tfscale.DataParallel(global_batch=8, seed=0)
    with dp.scope():
        layers = [keras.layers.Dense(8, "relu"), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        model = dp.prepare(keras.Sequential([keras.Input((4,)), *layers]))
        model.compile(keras.optimizers.Adam(0.01), "mse")
    x = np.random.default_rng(0).normal(size=(28, 4)).astype("float32")
    fitted = model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0, validation_data=(x, x[:, :1])).history
    return {
        "loss": fitted["loss"],
        "val_loss": fitted["val_loss"],
        "predictions": model.predict(x, batch_size=8, verbose=0),
        "weights": [weight.numpy() for weight in model.weights],
        "left alone": sum(answers),
    }
