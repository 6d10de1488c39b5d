"""`DataParallel` on replicas. Every function runs in a process of its own."""

from typing import Any

import keras
import numpy as np

import tfscale


def batches(num_replicas: int) -> dict[str, Any]:
    """(per-replica, global, reference batch, ratio, BatchNormalization) for each way to ask."""
    tfscale.simulate_replicas(num_replicas)
    asked: dict[str, dict[str, Any]] = {
        "per_replica": {"per_replica_batch": 24},
        "global": {"global_batch": 24},
        "reference": {"global_batch": 24, "recipe": tfscale.Recipe(12)},
        "local": {"global_batch": 24, "recipe": tfscale.Recipe(4)},
    }
    found = {}
    for name, arguments in asked.items():
        dp = tfscale.DataParallel(**arguments)
        plan = dp.plan
        found[name] = (plan.per_replica_batch, dp.global_batch, plan.reference_batch, dp.batch_ratio, dp._batch_norm)
    return found


def train(num_replicas: int) -> dict[str, Any]:
    """Weights after a run with the re-derived optimizer, and after one whose optimizer was written by hand."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 3)).astype("float32")
    y = x.sum(axis=1, keepdims=True)

    def build() -> keras.Model:
        keras.utils.set_random_seed(0)
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])

    # 100 examples are 20 reference steps; 2 epochs of warm-up are 40 of them, and 10 of the run.
    recipe = tfscale.Recipe(reference_batch=5, examples_per_epoch=100, warmup_epochs=2)
    dp = tfscale.DataParallel(global_batch=20, recipe=recipe)
    with dp.scope():
        model = dp.prepare(build())
        model.compile(dp.optimizer(keras.optimizers.SGD(0.005, momentum=0.9)), "mse")
    model.fit(x, y, epochs=4, shuffle=False, verbose=0)

    class ByHand(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            return 0.005 + 0.015 * keras.ops.minimum(keras.ops.cast(step, "float32") / 10, 1.0)

    plain = build()
    plain.compile(keras.optimizers.SGD(ByHand(), momentum=0.9), "mse")
    plain.fit(x, y, batch_size=20, epochs=4, shuffle=False, verbose=0)
    return {"weights": model.get_weights(), "by hand": plain.get_weights()}
