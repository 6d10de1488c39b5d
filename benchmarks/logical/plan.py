"""What is measured. Standard library only: the process that starts the others must leave the cores to them."""

from __future__ import annotations

import dataclasses

LOGICAL = 8
MODELS = {"mlp": "MLP 784-512-512-10", "convnet": "convnet, 32 and 64 filters"}
# Of one logical replica, and of a micro-step.
ROWS = {"mlp": 32, "convnet": 8}
NONE, MICRO, WITH, BITS = "none", "micro", "logical", "bits"
WAYS = {
    NONE: "no logical replicas",
    MICRO: "micro_batch, the same rows",
    WITH: f"{LOGICAL} logical replicas",
    BITS: "... and deterministic",
}
WARM_UP, STEPS = 4, 16


@dataclasses.dataclass(frozen=True)
class Cost:
    """A short training in one process.

    Args:
        first_s: Of the first step of `fit`, tracing included.
        step_s: Median of the steps after the first few.
        cpu_s: Processor time of such a step, of all threads; work beside it changes it little.
        peak_mb: Most memory that the process held.
        loss: What `fit` has logged at last.
        digest: Of the bytes of all weights at the end.
        versions: Of the packages that took part.
    """

    first_s: float
    step_s: float
    cpu_s: float
    peak_mb: float
    loss: float
    digest: str
    versions: dict[str, str]
