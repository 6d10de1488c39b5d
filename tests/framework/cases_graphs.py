"""What TensorFlow makes of functions. Every function runs in a process of its own."""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from tfscale.framework.graphs import without_graph_optimizer


def operations() -> dict[str, Any]:
    """The operations that the runtime has of equal functions, called with Grappler and without."""
    found: dict[str, Any] = {"values": []}
    around = {
        "before": contextlib.nullcontext,
        "without": without_graph_optimizer,
        "afterwards": contextlib.nullcontext,
    }
    for name, entered in around.items():
        with entered():
            function = _function()
            function.get_concrete_function(tf.constant(1.0))
            context.context().enable_run_metadata()
            found["values"].append(float(function(tf.constant(1.0))))
            graphs = context.context().export_run_metadata().function_graphs
            context.context().disable_run_metadata()
        found[name] = sorted(node.op for each in graphs for graph in each.partition_graphs for node in graph.node)
    return found


def _function() -> Any:
    @tf.function(autograph=False)
    def function(x: tf.Tensor) -> tf.Tensor:
        return x + tf.sqrt(tf.constant([1.0]))[0] + tf.sqrt(tf.constant([1.0, 2.0]))[0]

    return function
