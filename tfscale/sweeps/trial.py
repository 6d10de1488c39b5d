"""How does a trial say how it goes on, and learn that it is behind?"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from tfscale.errors import StudyError

# So many others must have come as far.
_LEAST_OTHERS = 4


class Pruned(BaseException):
    """Ends a trial that is behind."""


class SweepTrial:
    """What an objective gets that has an argument `trial`.

    Args:
        number: From 0.
        folder: Where trials report to.
        direction: `"min"` or `"max"`.
        prunes: Whether a trial that is behind ends.
    """

    def __init__(self, number: int, folder: Path, *, direction: str, prunes: bool):
        self.number = number
        self.last: float | None = None
        self._folder, self._direction, self._prunes = folder, direction, prunes
        self._file = folder / f"{number:06d}.reports"
        self._file.write_text("", encoding="utf-8")

    def report(self, step: int, value: float) -> None:
        """Tells the value after a step or an epoch; with `--prune` this ends a trial that is behind.

        Args:
            step: The same ones in every trial.
            value: Of what the objective returns at its end.

        Raises:
            Pruned: It is behind the median of the others at that step.
        """
        value = float(value)
        self.last = value if math.isfinite(value) else self.last
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([int(step), value if math.isfinite(value) else None]) + "\n")
        if self._prunes and is_behind(value, self._others(int(step)), self._direction):
            raise Pruned(f"behind the median at step {step}")

    def _others(self, step: int) -> list[float]:
        found = []
        for path in self._folder.glob("*.reports"):
            if path == self._file:
                continue
            # The last line may be on its way.
            for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
                at, value = json.loads(line)
                if at == step and value is not None:
                    found.append(float(value))
        return found


def is_behind(value: float, others: Sequence[float], direction: str) -> bool:
    """Whether a value is worse than the median of at least four others.

    Example:
        >>> from tfscale.sweeps.trial import is_behind
        >>> is_behind(3.0, [1, 2, 2, 4], "min"), is_behind(3.0, [1, 2, 2, 4], "max"), is_behind(3.0, [1, 2], "min")
        (True, False, False)
    """
    if direction not in ("min", "max"):
        raise StudyError(f"`direction` must be 'min' or 'max'.\nReceived: {direction!r}.")
    if not math.isfinite(value):
        return True
    if len(others) < _LEAST_OTHERS:
        return False
    middle = statistics.median(others)
    return value > middle if direction == "min" else value < middle
