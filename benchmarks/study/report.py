"""Do the studies show what Shallue et al. 2019 found? Numbers only."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfscale.errors import StudyError
from tfscale.scaling.knob import format_table
from tfscale.study import Study, TrialResult, fit

# How much larger momentum's critical batch is to be, and how far the workloads are to lie apart.
LEAST_BY_MOMENTUM, LEAST_APART = 2.0, 2.0
# Two studies of one workload, of other examples.
MOST_APART_AGAIN = 1.5
# How far examples may be from those that a study of smaller batches foretells.
MOST_OFF = 1.4
_PLAIN, _MOMENTUM, _AGAIN = "sgd", "momentum", "again"


@dataclass(frozen=True)
class Finding:
    """One of the paper's findings, or of the figures that a study is to reach.

    Args:
        what: In words.
        figure: What was measured.
        is_so: Whether it is so; None where the studies for it are not there.
    """

    what: str
    figure: str
    is_so: bool | None


def find(studies: Mapping[str, Study]) -> list[Finding]:
    """Looks for the findings.

    Args:
        studies: By the name of the workload, which is MODEL_OPTIMIZER.
    """
    first = {name: study for name, study in studies.items() if not name.endswith(_AGAIN)}
    # Where the batches do not contain it, the number is none to compare.
    told = {name: study for name, study in first.items() if study.is_bracketed}
    again = {name: study for name, study in studies.items() if study.is_bracketed}
    return [_regimes(first), *_by_momentum(told, first), _apart(told), *_again(again)]


def _regimes(studies: Mapping[str, Study]) -> Finding:
    without = [name for name, study in studies.items() if study.regimes is None or not study.is_bracketed]
    figure = f"{len(studies) - len(without)} of {len(studies)}" + (f"; not {', '.join(without)}" if without else "")
    return Finding("three regimes in every study", figure, not without if studies else None)


def _by_momentum(studies: Mapping[str, Study], begun: Iterable[str]) -> list[Finding]:
    found = []
    for name in sorted({name.rpartition("_")[0] for name in begun}):
        plain, momentum = (studies.get(f"{name}_{each}") for each in (_PLAIN, _MOMENTUM))
        what = f"{name}: momentum's critical batch by SGD's >= {LEAST_BY_MOMENTUM:g}"
        if plain is None or momentum is None:
            found.append(Finding(what, "not both studies contain it", None))
        else:
            ratio = momentum.b_crit / plain.b_crit
            figure = f"{ratio:.2f} ({momentum.b_crit:.0f} by {plain.b_crit:.0f})"
            found.append(Finding(what, figure, ratio >= LEAST_BY_MOMENTUM))
    return found


def _apart(studies: Mapping[str, Study]) -> Finding:
    by_model = {name.removesuffix(f"_{_MOMENTUM}"): s.b_crit for name, s in studies.items() if name.endswith(_MOMENTUM)}
    what = f"workloads differ, with momentum, by {LEAST_APART:g} or more"
    if len(by_model) < 2:
        return Finding(what, f"{len(by_model)} workloads", None)
    ratio = max(by_model.values()) / min(by_model.values())
    figure = f"{ratio:.2f} ({', '.join(f'{name} {value:.0f}' for name, value in by_model.items())})"
    return Finding(what, figure, ratio >= LEAST_APART)


def _again(studies: Mapping[str, Study]) -> list[Finding]:
    found = []
    for name, study in studies.items():
        again = studies.get(f"{name}_{_AGAIN}")
        if again is not None:
            ratio = max(study.b_crit, again.b_crit) / min(study.b_crit, again.b_crit)
            figure = f"{ratio:.2f} ({study.b_crit:.0f} and {again.b_crit:.0f})"
            found.append(
                Finding(f"{name}, other examples: within {MOST_APART_AGAIN}", figure, ratio <= MOST_APART_AGAIN)
            )
    return found


def foretold_examples(results: Iterable[TrialResult]) -> tuple[int, float] | None:
    """How far the examples at a large batch are from what the smaller ones foretell.

    Fitted are the batches up to twice the critical one of all, and foretold is the one that is nearest to four times
    it, of those from three times it on.

    Args:
        results: Of one study.

    Returns:
        That batch, and measured by foretold examples; None where there is no such batch, or too few to fit.
    """
    rows = list(results)
    try:
        whole = fit(rows, draws=0)
        far = [batch for batch in whole.best if batch >= 3 * whole.b_crit]
        part = fit([row for row in rows if row.trial.batch <= 2 * whole.b_crit], draws=0)
    except StudyError:
        return None
    if not far:
        return None
    batch = min(far, key=lambda each: abs(math.log(each / (4 * whole.b_crit))))
    return batch, whole.best[batch] / part.law.steps(batch)


def render(
    studies: Mapping[str, Study],
    trials: Mapping[str, int],
    bands: Mapping[str, tuple[float, float | None]],
    off: Mapping[str, tuple[int, float] | None],
) -> str:
    """The table of the studies.

    Args:
        studies: By name.
        trials: How many each has.
        bands: Between which critical batches the noise of one run has the truth; the end may be open.
        off: What `foretold_examples` says of each.
    """
    lines = [("study", "trials", "B_crit", "95 %", "S_min", "E_min", "rms", "regimes", "band of noise", "", "4 B_crit")]
    for name, study in studies.items():
        low, high = study.interval
        between = f"{low:.0f} to {high:.0f}" if math.isfinite(high) else f"from {low:.0f}"
        regimes = "yes" if study.regimes and study.is_bracketed else "no"
        band, holds = "", ""
        if name in bands:
            least, most = bands[name]
            band = f"{least:.0f} to {'any' if most is None else format(most, '.0f')}"
            holds = (
                "not told"
                if not study.is_bracketed
                else "holds it"
                if is_within(study.b_crit, bands[name])
                else "MISSED"
            )
        told = off.get(name)
        beyond = "" if told is None else f"{told[1]:.2f} at {told[0]}"
        numbers = (f"{study.b_crit:.0f}", between, f"{study.s_min:.0f}", f"{study.e_min:.0f}", f"{study.rms:.2f}")
        lines.append((name, str(trials[name]), *numbers, regimes, band, holds, beyond))
    return format_table(lines[0], lines[1:])


def is_within(value: float, band: tuple[float, float | None]) -> bool:
    """Whether a critical batch lies in a band."""
    low, high = band
    return low <= value and (high is None or value <= high)


def of_bands(studies: Mapping[str, Study], bands: Mapping[str, tuple[float, float | None]]) -> Finding:
    """Whether the bands from noise alone hold eight critical batches of ten."""
    told = {name: band for name, band in bands.items() if studies[name].is_bracketed}
    held = sum(is_within(studies[name].b_crit, band) for name, band in told.items())
    return Finding("the band from noise alone holds 8 of 10", f"{held} of {len(told)}", _share(held, len(told)))


def of_examples(off: Sequence[tuple[int, float] | None]) -> Finding:
    """Whether studies of batches up to twice the critical one foretell the examples at four times it."""
    known = [ratio for _, ratio in filter(None, off)]
    worst = max((max(ratio, 1 / ratio) for ratio in known), default=math.nan)
    what = f"examples at 4 B_crit, foretold from up to 2 B_crit, within {MOST_OFF}"
    return Finding(
        what,
        f"at worst {worst:.2f} of {len(known)}" if known else "no batch as large",
        worst <= MOST_OFF if known else None,
    )


def _share(held: int, of: int) -> bool | None:
    return held >= 0.8 * of if of else None


def to_json(findings: Iterable[Finding]) -> list[dict[str, object]]:
    """For a file."""
    return [dataclasses.asdict(each) for each in findings]
