"""BatchNormalization and moments on replicas. Every function runs in a process of its own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tfscale.exact.batch_norm import global_moments, set_batch_norm
from tfscale.framework.layers import batch_moments

MOMENTUM = 0.9


def _model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.BatchNormalization(momentum=MOMENTUM),
            keras.layers.Dense(1),
        ]
    )


def data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows)
    x = rng.normal(3, 2, size=(rows, 8)).astype("float32")
    return x, x[:, :1]


def local_statistics(num_replicas: int, rows: int, directory: str) -> dict[str, Any]:
    """Moving statistics of every replica after one step of `rows` rows, and what `evaluate` says."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=max(rows, num_replicas), batch_norm="local")
    with dp.scope():
        model = dp.prepare(_model())
        model.compile("sgd", "mse")
    x, y = data(rows)
    model.fit(x, y, verbose=0, shuffle=False)
    layer = model.layers[0]
    path = Path(directory, "local.keras")
    before = model.evaluate(x, y, verbose=0)
    model.save(path)
    return {
        "mean": [np.array(value) for value in layer.moving_mean.value.values],
        "variance": [np.array(value) for value in layer.moving_variance.value.values],
        "weights": model.get_weights(),
        "evaluate": before,
        "loaded": keras.models.load_model(path).evaluate(x, y, verbose=0),
    }


def moments(num_replicas: int, mean: float, deviation: float) -> dict[str, Any]:
    """`global_moments` of uneven shares, with the gradient of a function of both."""
    tfscale.simulate_replicas(num_replicas)
    strategy = tfscale.make_strategy()
    rng = np.random.default_rng(0)
    x = rng.normal(mean, deviation, size=(50, 3)).astype("float32")
    # The last replica has no rows at all.
    cuts = [0, *np.linspace(7, 50, num_replicas - 1).astype(int), 50]
    parts = [tf.constant(x[a:b]) for a, b in itertools.pairwise(cuts)]

    def replica() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        index = tf.distribute.get_replica_context().replica_id_in_sync_group
        rows = tf.identity(parts[int(tf.get_static_value(index))])
        with tf.GradientTape() as tape:
            tape.watch(rows)
            means, variances = global_moments(rows, [0])
            # Each replica adds the same number: together num_replicas times as much.
            total = tf.reduce_sum(means * [1.0, 2.0, 3.0] + variances) / num_replicas
        return means, variances, tape.gradient(total, rows)

    function = tf.function(lambda: strategy.run(replica))
    means, variances, gradients = map(strategy.experimental_local_results, function())
    graph = function.get_concrete_function().graph
    return {
        "x": x,
        "means": [value.numpy() for value in means],
        "variances": [value.numpy() for value in variances],
        "gradient": np.concatenate([value.numpy() for value in gradients]),
        "collectives": count_collectives(graph),
    }


def masked_moments(num_replicas: int) -> dict[str, Any]:
    """`global_moments` over batch and time with a mask, and those of Keras's layer on one device."""
    tfscale.simulate_replicas(num_replicas)
    strategy = tfscale.make_strategy()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(11, 4, 3))
    mask = rng.random((11, 4)) < 0.6
    mask[:4] = False
    cuts = np.linspace(0, 11, num_replicas + 1).astype(int)
    parts = [(tf.constant(x[a:b]), tf.constant(mask[a:b])) for a, b in itertools.pairwise(cuts)]

    def replica() -> Any:
        index = tf.distribute.get_replica_context().replica_id_in_sync_group
        rows, kept = parts[int(tf.get_static_value(index))]
        return global_moments(rows, [0, 1], kept)

    means, variances = tf.function(lambda: strategy.run(replica))()
    layer = keras.layers.BatchNormalization(dtype="float64")
    layer.build(x.shape)
    return {
        "of Keras": [value.numpy() for value in batch_moments(layer)(tf.constant(x), tf.constant(mask))],
        "means": [value.numpy() for value in strategy.experimental_local_results(means)],
        "variances": [value.numpy() for value in strategy.experimental_local_results(variances)],
    }


def count_collectives(graph: Any) -> int:
    """Collective operations in a graph and in the functions it calls, as often as it calls them."""
    definition = graph.as_graph_def()
    functions = {each.signature.name: each.node_def for each in definition.library.function}

    def count(nodes: Any) -> int:
        found = sum(node.op.startswith(("Collective", "Nccl")) for node in nodes)
        called = [
            each.name for node in nodes for value in node.attr.values() for each in (value.func, *value.list.func)
        ]
        return found + sum(count(functions[name]) for name in called if name in functions)

    return count(definition.node)


def nested_layers() -> list[str]:
    """Names of BatchNormalization layers that `set_batch_norm` reaches."""

    class Holds(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [{"a": keras.layers.BatchNormalization(name="in_dict")}]
            self.wrapped = keras.layers.TimeDistributed(keras.layers.BatchNormalization(name="wrapped"))
            self.inner = keras.Sequential([keras.layers.BatchNormalization(name="inner")])

        def call(self, inputs: Any) -> Any:
            return self.inner(self.wrapped(self.parts[0]["a"](inputs)))

    model = Holds()
    model(np.ones((2, 3, 4), "float32"))
    set_batch_norm(model, "synchronized")
    set_batch_norm(model, "synchronized")
    return sorted(layer.name for layer in model._flatten_layers() if "_moments" in vars(layer))
