"""Does an operation of a loop by hand divide by the number of replicas, or multiply by it?"""

from __future__ import annotations

from typing import Any

from tfscale.replicas.count_notes import noted_counts, noted_parts, noted_times
from tfscale.replicas.graph_walk import SAME_VALUES, plain_number

FACTORS = frozenset(("Div", "DivNoNan", "Mul", "MulNoNan", "RealDiv"))


def divides_by_replicas(op: Any) -> bool:
    """Whether it divides by what a script was told there: a plain number may be any other.

    Args:
        op: Of a graph.
    """
    counts = noted_counts()
    if op.type.startswith("Mul"):
        return any(_is_made_of(each, noted_parts() - counts) for each in op.inputs)
    return op.type in FACTORS and _is_made_of(op.inputs[1], counts)


def multiplies_by_replicas(op: Any) -> bool:
    """Whether it multiplies by what a script was told there.

    Args:
        op: Of a graph.
    """
    return op.type.startswith("Mul") and any(_is_made_of(each, noted_times()) for each in op.inputs)


def _is_made_of(tensor: Any, noted: set[int]) -> bool:
    """Whether it is what was noted, times a plain number."""
    op = tensor.op
    if id(op) in noted:
        return True
    others = [each for each in op.inputs if plain_number(each) is None or id(each.op) in noted]
    return op.type in FACTORS | SAME_VALUES and len(others) == 1 and _is_made_of(others[0], noted)
