"""What is measured. Standard library only: the process that starts the others must leave the cores to them."""

from __future__ import annotations

import dataclasses

MODELS = {
    "mlp": "MLP 784-512-512-10",
    "resnet": "ResNet-20, BatchNormalization",
    "transformer": "Transformer, 4 layers",
}
# By what `TFSCALE_TRACE` asks for; and Keras under `MirroredStrategy`, on one device without any.
ONCE, EACH, KERAS = "once", "each", "keras"
WAYS = {ONCE: "tfscale, traced once", EACH: "tfscale, traced by each", KERAS: "plain Keras"}
PER_REPLICA_BATCH = 2
STEPS = 12


@dataclasses.dataclass(frozen=True)
class Growth:
    """The first calls of one process.

    Args:
        first_s: Of the first step of `fit`, on the clock, building not included.
        first_cpu_s: Of the same, of all threads.
        step_s: Median of the steps after it.
        evaluate_cpu_s: Of the first `evaluate`, of one batch.
        predict_cpu_s: Of the first `predict`, of one batch.
        num_nodes: Operations of the largest graph of the process, with those of the functions it calls, once each.
        peak_mb: Most memory that the process held.
        loss: What `fit` has logged.
        versions: Of the packages that took part.
    """

    first_s: float
    first_cpu_s: float
    step_s: float
    evaluate_cpu_s: float
    predict_cpu_s: float
    num_nodes: int
    peak_mb: float
    loss: float
    versions: dict[str, str]
