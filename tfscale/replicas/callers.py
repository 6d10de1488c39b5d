"""On whose behalf does the code at hand run?

TensorFlow tells a strategy that a gradient is to be summed, a variable to be updated or data to be distributed, and not
for whom. Whoever it is stands on Python's stack, whatever holds it: an attribute, a list, a module or nothing at all.
"""

from __future__ import annotations

import inspect
from typing import TypeVar

Kind = TypeVar("Kind")


def callers(kind: type[Kind], *functions: str) -> list[Kind]:
    """Objects of one class whose methods are running in this thread, from the innermost to the outermost.

    Args:
        kind: Their class.
        *functions: Only those of whom a method of one of these names is running; any, if left out.

    Example:
        >>> class Owner:
        ...     def ask(self):
        ...         return callers(Owner) == [self], callers(Owner, "tell")
        >>> Owner().ask()
        (True, [])
    """
    found: dict[int, Kind] = {}
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self") if not functions or frame.f_code.co_name in functions else None
        if isinstance(owner, kind):
            found.setdefault(id(owner), owner)
        frame = frame.f_back
    return list(found.values())
