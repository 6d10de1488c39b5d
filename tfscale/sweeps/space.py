"""From which values may a trial draw?"""

from __future__ import annotations

import importlib.util
import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfscale.errors import StudyError

Value = bool | int | float | str | None


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; whole ones where both ends are.

    Args:
        low: The least.
        high: The largest.
        is_log: Whether each factor is as likely as any other, in place of each difference.
    """

    low: float
    high: float
    is_log: bool

    @property
    def is_whole(self) -> bool:
        """Whether it is of whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, chance: random.Random) -> float:
        """One of them."""
        if self.is_whole and not self.is_log:
            return chance.randint(int(self.low), int(self.high))
        # Each whole number has the part of the range that is nearest to it.
        low, high = (self.low - 0.5, self.high + 0.5) if self.is_whole else (self.low, self.high)
        at = math.exp(chance.uniform(math.log(low), math.log(high))) if self.is_log else chance.uniform(low, high)
        at = min(self.high, max(self.low, at))
        return round(at) if self.is_whole else at


@dataclass(frozen=True)
class Choice:
    """One of several values.

    Args:
        values: Numbers, texts, True, False, None.
    """

    values: tuple[Value, ...]

    def draw(self, chance: random.Random) -> Value:
        """One of them."""
        return chance.choice(self.values)


Space = Mapping[str, Range | Choice]


def parse_space(given: Any) -> Space:
    """Reads a space: by name a list of values, `{"low": 1e-4, "high": 1, "log": True}`, or one value.

    Args:
        given: A mapping.

    Raises:
        StudyError: When it is none, or a range has no numbers or is empty.

    Example:
        >>> from tfscale.sweeps.space import parse_space
        >>> parse_space({"rate": {"low": 0.01, "high": 1.0, "log": True}, "width": [32, 64]})["rate"]
        Range(low=0.01, high=1.0, is_log=True)
    """
    if not isinstance(given, Mapping) or not given:
        raise StudyError(
            "A space must have a name for each argument of the objective, with its values.\n"
            f"Received: {str(given)[:200]!r}. Such as {{'rate': {{'low': 1e-4, 'high': 1, 'log': True}}}}."
        )
    found: dict[str, Range | Choice] = {}
    for name, each in given.items():
        if not isinstance(name, str) or not name.isidentifier() or name == "trial":
            raise StudyError(
                f"A name in a space must be one of an argument, and not 'trial'.\nReceived: {str(name)[:100]!r}."
            )
        found[name] = _parse_one(name, each)
    return found


def _parse_one(name: str, given: Any) -> Range | Choice:
    if isinstance(given, Mapping):
        return _parse_range(name, given)
    values = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not values or not all(each is None or isinstance(each, bool | int | float | str) for each in values):
        raise StudyError(
            f"The values of {name!r} must be numbers, texts, True, False or None.\nReceived: {str(given)[:200]!r}."
        )
    return Choice(values)


def _parse_range(name: str, given: Mapping[Any, Any]) -> Range:
    # YAML takes 1e-4 for a text.
    ends = [_number(given.get(end)) for end in ("low", "high")]
    is_log = given.get("log", False)
    is_known = set(given) <= {"low", "high", "log"} and isinstance(is_log, bool)
    low, high = ends
    if not is_known or low is None or high is None or low > high or (is_log and low <= 0):
        raise StudyError(
            f"A range of {name!r} must have low and high, numbers in that order, and may have log, for which both "
            f"are above 0.\nReceived: {str(dict(given))[:200]!r}."
        )
    return Range(low, high, is_log)


def _number(given: Any) -> float | None:
    if isinstance(given, str):
        try:
            given = float(given)
        except ValueError:
            return None
    is_number = isinstance(given, int | float) and not isinstance(given, bool) and abs(given) < 1e300
    return given if is_number else None


def draw(space: Space, number: int, seed: int) -> dict[str, Any]:
    """Draws the settings of one trial, the same ones whenever it is asked.

    Example:
        >>> from tfscale.sweeps.space import draw, parse_space
        >>> space = parse_space({"rate": {"low": 0.01, "high": 1.0}})
        >>> draw(space, 3, 0) == draw(space, 3, 0) != draw(space, 4, 0)
        True
    """
    return {name: each.draw(random.Random(f"{seed}/{number}/{name}")) for name, each in space.items()}


def read_space(text: str) -> Space:
    """Reads space.yaml, space.json, or a dict in space.py: `space.py:NAME`, by default SPACE.

    Raises:
        StudyError: When it cannot be read, or is no space.
    """
    path, _, name = text.rpartition(":") if ".py:" in text else (text, "", "SPACE")
    file = Path(path)
    try:
        if file.suffix == ".py":
            given = _from_python(file, name)
        elif file.suffix == ".json":
            given = json.loads(file.read_text(encoding="utf-8"))
        else:
            given = _from_yaml(file)
    except StudyError:
        raise
    except Exception as error:
        raise StudyError(
            "A space must be a file that can be read: .yaml, .json or .py.\n"
            f"Received: {text[:200]!r}: {type(error).__name__}: {str(error)[:300]}."
        ) from error
    return parse_space(given)


def _from_python(file: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"{file.stem}_of_sweep", file)
    if spec is None or spec.loader is None:
        raise OSError("no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def _from_yaml(file: Path) -> Any:
    content = file.read_text(encoding="utf-8")
    try:
        import yaml
    except ImportError as error:
        raise StudyError(
            "A space in YAML needs PyYAML.\nReceived: it is not installed. `pip install pyyaml`, or write space.json."
        ) from error
    return yaml.safe_load(content)
