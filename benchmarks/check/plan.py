"""What is measured. Standard library only: the process that starts the others must leave the cores to them."""

from __future__ import annotations

import dataclasses

MODELS = {
    "mlp": "MLP 784-512-512-10",
    "resnet": "ResNet, 1 block, BatchNormalization",
    "transformer": "Transformer, 2 layers",
    "own train_step": "the MLP, own train_step",
}
NUM_REPLICAS = {"mlp": (1, 2, 4), "resnet": (1, 2, 4), "transformer": (1, 2, 4), "own train_step": (2,)}
# Of one step of all replicas: what N changes is how many replicas are traced, not what is computed.
BATCH = 64
WITHOUT, WITH = "off", "always"


@dataclasses.dataclass(frozen=True)
class FirstStep:
    """One `fit` of one step, the first of its process.

    Args:
        seconds: Of the call, on the clock.
        cpu_s: Of the call, of all threads.
        check_s: Of `seconds`, those of each check.
        loss: What `fit` has logged.
        messages: What the check had to say.
        versions: Of the packages that took part.
    """

    seconds: float
    cpu_s: float
    check_s: tuple[float, ...]
    loss: float
    messages: tuple[str, ...]
    versions: dict[str, str]
