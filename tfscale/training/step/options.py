"""What was `prepare` asked for?"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from tfscale.gradients.sending import Sending


class Options(NamedTuple):
    """What `prepare` was asked for, besides the model and its strategy."""

    global_batch: int | None
    micro_batch: int | str | None
    logical_replicas: int | None
    deterministic: bool
    batch_norm: str
    batch_ratio: int | Fraction
    steps_per_execution: str | int | None
    sending: Sending
    check: str
