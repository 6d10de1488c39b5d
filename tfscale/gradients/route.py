"""What does tfscale know about an optimizer?"""

from __future__ import annotations

from typing import Any

from tfscale.gradients.updaters import innermost
from tfscale.replicas.owners import Owner


class GradientRoute(Owner):
    """What is known of an optimizer and of the way of its gradients; a `LossScaleOptimizer` is the one inside of it."""

    @staticmethod
    def key(subject: Any) -> Any:
        """The optimizer that updates the weights."""
        return innermost(subject)
