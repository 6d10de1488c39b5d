"""What became of one hyper-parameter, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

NOT_UNDERSTOOD = "not understood"
UNCHANGED = "unchanged"


@dataclass(frozen=True)
class ScaledKnob:
    """One hyper-parameter before and after, as a row of a table.

    Args:
        name: Its name in the config; a dotted path when it lies inside another object.
        unit: What it is counted in, such as "steps"; empty for a bare number.
        old: The value the recipe was tuned with.
        new: The value for the new batch; equal to `old` when it was left alone.
        rule: The formula, with r for the batch ratio and f for the factor of the rate, such as "m^r"; or "kept", where
            another law might be expected, "unchanged", or "not understood".
        reason: One sentence for the user.

    Example:
        >>> from tfscale.scaling import scale_batch_norm_momentum
        >>> knob = scale_batch_norm_momentum(0.99, 2)
        >>> knob.name, knob.old, round(knob.new, 4), knob.rule
        ('momentum', 0.99, 0.9801, 'm^r')
    """

    name: str
    unit: str
    old: Any
    new: Any
    rule: str
    reason: str

    @property
    def is_changed(self) -> bool:
        """Whether the new value differs from the old one."""
        return bool(self.old != self.new)

    @property
    def is_understood(self) -> bool:
        """Whether it is known what the knob does, so that the new value is right."""
        return self.rule != NOT_UNDERSTOOD


def format_value(value: Any) -> str:
    """Returns a number as a table shows it: whole ones in full, others to six digits."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(format_value, value))
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)):
        return "-" if value is None else str(value)
    number = float(value)
    return str(int(number)) if number.is_integer() and -1e15 < number < 1e15 else f"{number:.6g}"


def format_reasons(knobs: Iterable[ScaledKnob]) -> list[str]:
    """Returns lines that say why, one for each reason, under the first knob that has it; none for unchanged knobs."""
    reasons: dict[str, str] = {}
    for knob in knobs:
        if knob.rule != UNCHANGED:
            reasons.setdefault(knob.reason, knob.name)
    return ["", "Why:", *(f"  {name}: {reason}" for reason, name in reasons.items())] if reasons else []


def format_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns rows as lines of aligned columns; the last column is not padded."""
    cells = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
