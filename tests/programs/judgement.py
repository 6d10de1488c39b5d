"""Whether a run on replicas left what plain Keras leaves on one device."""

from dataclasses import dataclass

import numpy as np

from tests.programs.outcome import Outcome, Setting
from tests.programs.program import Program

_TOLERANCE = {False: 1e-4, True: 1e-6}
# A weight that is small beside the model's largest one is judged against this part of that: rounding is not its own.
_FLOOR_OF_WEIGHTS = 1e-2
# Logs and results that are nearly zero are judged as if they were this large.
_FLOOR = 1e-3


@dataclass(frozen=True)
class Verdict:
    """One of four words, and what is to be said about it."""

    word: str  # "equal", "refused", "different", "error"
    detail: str = ""
    output: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.detail}" if self.detail else self.word

    def is_expected(self, program: Program, setting: Setting) -> bool:
        """Whether the program may end like this. On one replica, one that must be refused may be equal as well."""
        if self.word == "refused":
            name = self.detail.partition(":")[0]
            return program.may_be_refused is True or name in (program.refused, program.may_be_refused)
        several = setting.replicas * setting.workers > 1
        return self.word == "equal" and not (program.refused and several)


def judge(setting: Setting, plain: Outcome, outcomes: list[Outcome]) -> Verdict:
    """The verdict on what all workers of one run left."""
    if plain.error:
        return Verdict("error", f"in plain Keras: {plain.error}", plain.output)
    if bad := _not_finite(plain):
        return Verdict("error", f"in plain Keras: {bad}")
    if ended := [outcome for outcome in outcomes if outcome.error]:
        # Of workers that end together the one with an error of ours says most, one that was killed least.
        ended.sort(key=lambda outcome: (not outcome.refused, outcome.error_name == "Killed"))
        output = "\n".join(outcome.output for outcome in ended)
        return Verdict("refused" if all(each.refused for each in ended) else "error", ended[0].error, output)
    if setting.drawn:
        bad = next(filter(None, map(_not_finite, outcomes)), "")
        return Verdict("different" if bad else "equal", bad)
    found = [each for outcome in outcomes for each in differences(plain.values, outcome.values)]
    difference, what = max(found, default=(0.0, ""))
    if difference <= _TOLERANCE[setting.float64]:
        return Verdict("equal", output=f"{difference:.0e}")
    return Verdict("different", what)


def _not_finite(outcome: Outcome) -> str:
    if not outcome.values:
        return "no numbers were found"
    return next((f"{n} is not finite" for n, array in outcome.values.items() if not np.all(np.isfinite(array))), "")


def differences(expected: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> list[tuple[float, str]]:
    """(relative difference, in words) of each name that both or one of them have."""
    largest: dict[str, float] = {}
    for name, array in expected.items():
        model = name.partition(" weight ")[0]
        largest[model] = max(largest.get(model, 0.0), _size(array))
    found = []
    for name in sorted({*expected, *got}):
        if name not in expected or name not in got:
            found.append((np.inf, f"{name} is {'missing' if name in expected else 'new'}"))
            continue
        one, other = expected[name], got[name]
        if one.shape != other.shape:
            found.append((np.inf, f"{name} has the shape {other.shape} for {one.shape}"))
            continue
        if one.size:
            model, is_weight, _ = name.partition(" weight ")
            floor = _FLOOR_OF_WEIGHTS * largest[model] if is_weight else _FLOOR
            difference = _size(other.astype("float64") - one.astype("float64")) / max(_size(one), floor, 1e-30)
            # A difference that is no number is as bad as any.
            difference = difference if np.isfinite(difference) else np.inf
            found.append((difference, f"{name} by {difference:.2g}"))
    return found


def _size(array: np.ndarray) -> float:
    return float(np.max(np.abs(array.astype("float64")))) if array.size else 0.0
