"""Callbacks on replicas. Every function runs in a process of its own."""

from typing import Any

import keras
import numpy as np

import tfscale


def scaled_run(num_replicas: int) -> dict[str, Any]:
    """A prepared run with `ReplicaScaling` and a scheduler: weights, velocities on every replica, rates."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3)).astype("float32")
    dp = tfscale.DataParallel(global_batch=8, recipe=tfscale.Recipe(2), seed=1)
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)]))
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
        model.compile(optimizer, "mse")
    report = tfscale.callbacks.ScalingReport(dp.plan)
    halve = keras.callbacks.LearningRateScheduler(lambda epoch: 0.01 / 2**epoch)
    scaling = tfscale.callbacks.ReplicaScaling(dp.batch_ratio, warmup_steps=20)
    callbacks = [*dp.callbacks([halve, scaling]), report]
    model.fit(x, x.sum(axis=1), epochs=3, shuffle=False, verbose=0, callbacks=callbacks)
    local = dp.strategy.experimental_local_results
    velocities = [[np.array(each) for each in local(velocity.value)] for velocity in optimizer.momentums]
    return {
        "weights": model.get_weights(),
        "velocities": velocities,
        "rates": [row["learning_rate"] for row in report.rows],
    }
