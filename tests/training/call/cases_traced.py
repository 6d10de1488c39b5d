"""Steps that TensorFlow optimises, and steps that it runs as they were traced. Every function has its own process."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

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


def held() -> dict[str, Any]:
    """What is called for which arguments, of a function that is traced; and what that returns."""
    traces = []

    def taking(iterator: Any, count: Any) -> Any:
        traces.append(count)
        return next(iterator) * (1 if count is None else count)

    data = tf.data.Dataset.range(1, 100)
    run, holder = tf.function(taking, reduce_retracing=True), traced.HeldTrace()
    one, other = iter(data), iter(data)
    found: dict[str, Any] = {}

    def call(name: str, iterator: Any, count: Any = None) -> None:
        function = holder.function(run, (iterator, count))
        found[name] = (function is not run, int(function(iterator, count)))

    for index in range(3):
        call(f"{index}", one)
    for index in range(3):
        call(f"several {index}", one, tf.constant(index + 2, tf.int64))
    call("alone again", one)
    tf.config.run_functions_eagerly(True)
    call("eager", one)
    tf.config.run_functions_eagerly(False)
    call("another", other)
    call("another 1", other)
    call("back", one)
    del one, other
    found["nothing keeps the iterator"] = holder._iterator() is None
    batch = (tf.constant(1.0), tf.constant(2.0))
    found["a batch"] = holder.function(run, (batch,)) is run
    found["traces"] = len(traces)
    return found


def looked_up(holds: bool, num_replicas: int) -> dict[str, Any]:
    """What replicas learn where the trace is held, and where TensorFlow looks for it in each call."""
    looked: list[Any] = []
    function = traced.HeldTrace.function

    def noted(self: Any, run: Any, args: Any) -> Any:
        looked.append(function(self, run, args) if holds else run)
        return looked[-1]

    traced.HeldTrace.function = noted
    tfscale.simulate_replicas(num_replicas)
    x = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")
    found: dict[str, Any] = {}
    strategy = tfscale.make_strategy()
    for steps in (1, 3):
        dp = tfscale.DataParallel(global_batch=8, seed=0, steps_per_execution=None, devices=strategy)
        with dp.scope():
            layers = [keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.2), keras.layers.BatchNormalization()]
            model = dp.prepare(keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)]))
            model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], steps_per_execution=steps)
        fitted = model.fit(x, x[:, :1], epochs=2, verbose=0, validation_data=(x, x[:, :1])).history
        found[f"{steps} steps"] = {**fitted, "weights": [weight.numpy().tolist() for weight in model.weights]}
    held = [each for each in looked if hasattr(each, "captured_inputs")]
    return {"found": found, "held": len(held), "calls": len(looked)}
