"""Schedules on replicas. Every function runs in a process of its own."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale


def weights_on_replicas(num_replicas: int) -> dict[str, Any]:
    """One weight with a gradient of 1, for five steps inside `tf.function`; its value on every replica."""
    tfscale.simulate_replicas(num_replicas)
    strategy = tfscale.make_strategy()
    with strategy.scope():
        weight = keras.Variable(0.0)
        schedule = tfscale.ReplicaSchedule(tfscale.StepDecay(0.1, 0.5, interval=3), num_replicas, warmup_steps=4)
        optimizer = keras.optimizers.SGD(schedule)
        optimizer.build([weight])

    traces = []

    @tf.function
    def step() -> None:
        traces.append(1)
        # Plain Keras adds the gradients of the replicas.
        strategy.run(lambda: optimizer.apply([tf.constant(1.0 / num_replicas)]))

    values = []
    for _ in range(5):
        step()
        values.append([np.array(each) for each in strategy.experimental_local_results(weight.value)])
    return {"weights": np.array(values).T, "traces": len(traces)}
