"""What do the knobs that lie outside the optimizer become: of BatchNormalization, of callbacks?"""

from __future__ import annotations

import math
import numbers
from fractions import Fraction
from typing import Any

from tfscale.errors import ScalingError
from tfscale.scaling.knob import UNCHANGED, ScaledKnob
from tfscale.scaling.laws import MEMORY, WHOLE, Growth, scale_memory, scale_whole
from tfscale.scaling.ratio import check_ratio
from tfscale.scaling.rules import NoRule

# The callback arguments of Keras that count steps: how often, or at which.
PERIODS = ("save_freq", "update_freq")
POSITIONS = ("profile_batch",)


def scale_batch_norm_momentum(momentum: float, ratio: Any) -> ScaledKnob:
    """Re-derives the momentum of BatchNormalization's moving statistics: `m^r`.

    One step moves them by 1 - m towards the statistics of its batch. With r times fewer steps in an epoch, m^r makes
    them remember as many examples.

    Args:
        momentum: m, from 0 to 1.
        ratio: r, the batch ratio.

    Raises:
        ScalingError: When the ratio or the momentum is not as above, or m^r leaves (0, 1).

    Reference:
        Busbridge et al. 2023, "How to Scale Your EMA", arXiv:2307.13813; here by analogy with an average of weights.

    Example:
        >>> from tfscale.scaling import scale_batch_norm_momentum
        >>> round(scale_batch_norm_momentum(0.99, 8).new, 4)
        0.9227
    """
    growth = _growth(ratio)
    if growth.ratio == 1:
        return _same("momentum", MEMORY.unit, momentum)
    new, _ = scale_memory("momentum", momentum, growth)
    return ScaledKnob("momentum", MEMORY.unit, momentum, new, MEMORY.formula, MEMORY.reason)


def scale_callback_argument(name: str, value: Any, ratio: Any) -> ScaledKnob:
    """Re-derives a step-counted argument of one of Keras's callbacks.

    A period of n batches becomes `max(1, round(n / r))`. A position, batch k from 1, becomes `ceil(k / r)`: the batch
    in which the last example of that one is seen.

    Args:
        name: `"save_freq"` (ModelCheckpoint, BackupAndRestore), `"update_freq"` or `"profile_batch"` (TensorBoard).
        value: As Keras takes it: `"epoch"` and `"batch"`, a profile of 0, and `False` stay what they are; a profile may
            be a batch, a pair, or the text "first,last".
        ratio: r, the batch ratio.

    Raises:
        ScalingError: When the argument is another one, or the value is none that Keras takes.

    Example:
        >>> from tfscale.scaling import scale_callback_argument
        >>> scale_callback_argument("save_freq", 100, 8).new, scale_callback_argument("save_freq", 3, 8).new
        (13, 1)
        >>> scale_callback_argument("profile_batch", (500, 520), 8).new
        (63, 65)
    """
    growth = _growth(ratio)
    if name not in (*PERIODS, *POSITIONS):
        raise ScalingError(
            f"The argument must be one that counts steps: {', '.join((*PERIODS, *POSITIONS))}.\n"
            f"Received: {name!r}. Arguments that count epochs need no change."
        )
    if value in ("epoch", "batch") or value is False or value == 0:
        reason = "switched off" if not value else "an epoch stays an epoch" if value == "epoch" else "every step"
        return ScaledKnob(name, "", value, value, UNCHANGED, reason)
    if growth.ratio == 1:
        return _same(name, "steps", value)
    if name in PERIODS:
        whole, remark = scale_whole(name, value, growth)
        reason = f"{WHOLE.reason}; {remark}" if remark else WHOLE.reason
        return ScaledKnob(name, "steps", value, whole, WHOLE.formula, reason)
    return ScaledKnob(name, "steps", value, _scale_positions(name, value, growth.ratio), "/ r", "at the same examples")


def _scale_positions(name: str, value: Any, ratio: Fraction) -> Any:
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
    try:
        batches = [int(part) for part in parts]
    except (TypeError, ValueError):
        batches = [-1]
    whole = all(isinstance(part, (str, numbers.Integral)) and not isinstance(part, bool) for part in parts)
    if not whole or not 1 <= len(batches) <= 2 or min(batches) < 0 or batches != sorted(batches):
        raise ScalingError(
            f"`{name}` must be a batch, or the first and the last of a range.\n"
            f"Received: {name}={value!r}. Give, for example, 10 or (10, 20)."
        )
    scaled = [math.ceil(batch / ratio) for batch in batches]
    if isinstance(value, str):
        return ",".join(map(str, scaled))
    return type(value)(scaled) if isinstance(value, (list, tuple)) else scaled[0]


def _growth(ratio: Any) -> Growth:
    return Growth(check_ratio(ratio), 1.0, NoRule(), {})


def _same(name: str, unit: str, value: Any) -> ScaledKnob:
    return ScaledKnob(name, unit, value, value, UNCHANGED, "batch_ratio is 1: nothing changes")
