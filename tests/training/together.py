"""Several cases in one process: starting TensorFlow takes longer than most of them."""

from __future__ import annotations

import gc
import importlib
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from tests.processes import run_case

Call = tuple[str, tuple[Any, ...]]


class Failure(str):
    """The traceback of a case that raised."""


def run_together(
    calls: Sequence[Call], *, env: Mapping[str, str] | None = None, timeout_s: float = 600.0
) -> dict[Call, Any]:
    """Runs cases one after the other in one process; all ask for the same number of replicas.

    Args:
        calls: Pairs of a function, "package.module:function", and its positional arguments.
        env: Environment variables to add, as for `run_case`.
        timeout_s: The deadline for all of them.

    Returns:
        Each call's result, or a `Failure`.
    """
    calls = list(dict.fromkeys(calls))
    results = run_case("tests.training.together:run", args=(calls,), env=env, timeout_s=timeout_s)
    return dict(zip(calls, results, strict=True))


def run(calls: Sequence[Call]) -> list[Any]:
    """Runs in the child process."""
    return [_run_one(*call) for call in calls]


def _run_one(target: str, args: tuple[Any, ...]) -> Any:
    module, _, function = target.partition(":")
    # What TensorFlow keeps of the cases before stays for good: Python's garbage collector need not look through it at
    # every step of a trace, nor Keras's `clear_session`.
    gc.collect()
    gc.freeze()
    try:
        return getattr(importlib.import_module(module), function)(*args)
    except Exception:
        return Failure(traceback.format_exc())
