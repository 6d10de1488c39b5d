"""Does an operation of a loop by hand divide by the number of replicas?"""

from __future__ import annotations

from typing import Any

from tfscale.replicas.graph_walk import SAME_VALUES, plain_number
from tfscale.replicas.replica_count import noted_parts
from tfscale.replicas.share import num_replicas

FACTORS = frozenset(("Div", "DivNoNan", "Mul", "MulNoNan", "RealDiv"))


def divides_by_replicas(op: Any) -> bool:
    """Whether it does, by what a script was told there, or by a plain number.

    Args:
        op: Of a graph.
    """
    parts = noted_parts()
    return any(_is_part(each, parts) for each in op.inputs) or divides_by_plain_count(op)


def _is_part(tensor: Any, parts: set[int]) -> bool:
    """Whether it is n_i / n, times a plain number."""
    op = tensor.op
    if id(op) in parts:
        return True
    others = [each for each in op.inputs if plain_number(each) is None or id(each.op) in parts]
    return op.type in FACTORS | SAME_VALUES and len(others) == 1 and _is_part(others[0], parts)


def divides_by_plain_count(op: Any) -> bool:
    """Whether it does by a plain number. Of two replicas, a half may be anything.

    Args:
        op: Of a graph.
    """
    if op.type not in FACTORS or not op.outputs[0].dtype.is_floating:
        return False
    count, is_product = num_replicas(), op.type.startswith("Mul")
    if is_product and count == 2:
        return False
    wanted = 1 / count if is_product else count
    numbers = [plain_number(each) for each in op.inputs[0 if is_product else 1 :]]
    return any(number is not None and abs(number - wanted) < 1e-6 for number in numbers)
