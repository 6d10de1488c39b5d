"""Linear regression without bias, in float64: what cases that change how gradients travel are compared with."""

from __future__ import annotations

import itertools

import numpy as np

GLOBAL_BATCH, EPOCHS, RATE, FEATURES, OUTPUTS = 10, 2, 0.05, 8, 6
# Two full batches of 10, which 3 replicas share unevenly, and a last one of 4.
ROWS = np.random.default_rng(0).normal(size=(24, FEATURES)).astype("float32")
TARGETS = (ROWS @ np.random.default_rng(1).normal(size=(FEATURES, OUTPUTS))).astype("float32")


def gradients_of_replicas(x: np.ndarray, y: np.ndarray, kernel: np.ndarray, num_replicas: int) -> list[np.ndarray]:
    """What each replica adds to the gradient of the mean squared error of a global batch."""
    bounds = [len(x) * i // num_replicas for i in range(num_replicas + 1)]
    return [2 / OUTPUTS * x[a:b].T @ (x[a:b] @ kernel - y[a:b]) / len(x) for a, b in itertools.pairwise(bounds)]


class PowerSgdByHand:
    """PowerSGD with error feedback and warm start, as the paper has it.

    Args:
        num_replicas: Each remembers its own error.
        first_q: Q of the first step.
    """

    def __init__(self, num_replicas: int, first_q: np.ndarray):
        self._q = first_q.astype("float64")
        self._errors = [np.zeros((FEATURES, OUTPUTS))] * num_replicas

    def sum(self, parts: list[np.ndarray]) -> np.ndarray:
        """What takes the place of the sum of the replicas' gradients."""
        wanted = [part + error for part, error in zip(parts, self._errors, strict=True)]
        p, _ = np.linalg.qr(sum(each @ self._q for each in wanted))
        own = [each.T @ p for each in wanted]
        self._q = sum(own)
        self._errors = [each - p @ own_q.T for each, own_q in zip(wanted, own, strict=True)]
        return p @ self._q.T
