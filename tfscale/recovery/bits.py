"""Can a run that goes on here have the bits that it would have had?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ASKED_FOR = "deterministic"


def changed_bits(saved: Mapping[str, Any] | None, own: Mapping[str, Any]) -> list[str]:
    """Returns what is not the same of that on which bits depend, in words; nothing where nobody asked for bits.

    Args:
        saved: As `bits_of_run` when the state was saved; None of a version that did not note it.
        own: The same, now.

    Example:
        >>> now = {"deterministic": True, "keras": "3.15.1"}
        >>> changed_bits({"deterministic": True, "keras": "3.14.1"}, now)
        ["keras: '3.14.1' when it was saved, '3.15.1' now"]
    """
    if saved is None or not (saved.get(_ASKED_FOR) or own.get(_ASKED_FOR)):
        return []
    return [
        f"{name}: {saved[name]!r} when it was saved, {value!r} now"
        for name, value in own.items()
        if name in saved and saved[name] != value
    ]
