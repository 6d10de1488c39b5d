"""What does a study look like: a picture, one page that needs nothing else, JSON?"""

from __future__ import annotations

import base64
import html
import io
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfscale.console.drawing import new_figure
from tfscale.study import Study, Trial, TrialResult


def write_report(
    directory: Path,
    study: Study,
    results: Sequence[TrialResult],
    left: Sequence[Trial],
    *,
    title: str,
    not_tried: str,
) -> None:
    """Writes `study.png` and `study.html`.

    Args:
        directory: Where to.
        study: The fit.
        results: All trials.
        left: Those of the round that were not run.
        title: The target, and what was trained.
        not_tried: What the study does not say.
    """
    content = io.BytesIO()
    draw(study, results, title).savefig(content, format="png", dpi=110)
    picture = content.getvalue()
    (directory / "study.png").write_bytes(picture)
    below = f"{tell_left(left)} Not tried: {not_tried}".strip()
    (directory / "study.html").write_text(_page(study, results, title, below, picture), encoding="utf-8")


def draw(study: Study, results: Sequence[TrialResult], title: str) -> Any:
    """Returns a figure of matplotlib: steps and rates against the batch, with every trial."""
    figure = new_figure((12, 5))
    steps, rates = figure.subplots(1, 2)
    batches = sorted({each.trial.batch for each in results})
    _draw_trials(steps, results)
    _draw_regimes(steps, study, batches)
    steps.plot(list(study.best), list(study.best.values()), "ko-", label="best")
    grid = [batches[0] * (batches[-1] / batches[0]) ** (place / 100) for place in range(101)]
    steps.plot(grid, [study.law.steps(each) for each in grid], "C0--", label="S_min (1 + B_crit / B)")
    low, high = study.interval
    steps.axvline(study.b_crit, color="C3", label=f"B_crit {study.b_crit:.3g}")
    steps.axvspan(max(low, batches[0] / 2), min(high, batches[-1] * 2), color="C3", alpha=0.15)
    steps.set(xscale="log", yscale="log", xlabel="batch (examples)", ylabel="steps to the target")
    # Above the names of the regimes.
    steps.set_title(title, pad=22)
    steps.legend(fontsize=8)
    name = next(iter(next(iter(study.best_parameters.values()))), None)
    if name is not None:
        rates.plot(
            list(study.best_parameters), [each[name] for each in study.best_parameters.values()], "ko-", label="best"
        )
        tried = [each.trial for each in results]
        rates.scatter(
            [t.batch for t in tried], [t.parameters[name] for t in tried], s=10, color="0.8", zorder=0, label="tried"
        )
        rates.legend(fontsize=8)
    rates.set(xscale="log", yscale="log", xlabel="batch (examples)", ylabel=f"best {name}", title=f"best {name}")
    return figure


def tell_left(left: Sequence[Trial]) -> str:
    """A sentence on the trials that were not run; empty where there are none."""
    if not left:
        return ""
    batches = ", ".join(map(str, sorted({each.batch for each in left})))
    return (
        f"{len(left)} trials of this round were not run, at batches {batches}: the hours were over. The study goes on "
        "in its directory."
    )


def study_to_json(
    study: Study, results: Sequence[TrialResult], left: Sequence[Trial], directory: str
) -> dict[str, Any]:
    """What the text and the page say, for JSON; a number without an end is None.

    Args:
        study: The fit.
        results: All trials.
        left: Those of the round that were not run.
        directory: Of the study.
    """
    return {
        "b_crit": study.b_crit,
        "interval": _ends(study.interval),
        "is_bracketed": study.is_bracketed,
        "s_min": study.s_min,
        "e_min": study.e_min,
        "rms": study.rms,
        "exponent": study.law.exponent,
        "batches": _rows(study, results),
        "regimes": study.regimes and {name: _ends(each) for name, each in study.regimes.items()},
        "cautions": list(study.cautions),
        "told": str(study).splitlines(),
        "trials": len(results),
        "trials_left": len(left),
        "reasons": _reasons(results),
        "directory": directory,
    }


def _ends(band: Sequence[float]) -> list[float | None]:
    return [each if math.isfinite(each) else None for each in band]


def _rows(study: Study, results: Sequence[TrialResult]) -> list[dict[str, Any]]:
    """One for each batch that was tried."""
    found = []
    for batch in sorted({each.trial.batch for each in results}):
        own = [each for each in results if each.trial.batch == batch]
        steps = study.best.get(batch)
        row = {
            "batch": batch,
            "trials": len(own),
            "reached": sum(math.isfinite(each.steps) for each in own),
            "steps": steps,
            "examples": None if steps is None else steps * batch,
            "law_steps": study.law.steps(batch),
            "parameters": None if steps is None else dict(study.best_parameters[batch]),
        }
        found.append(row)
    return found


def _reasons(results: Sequence[TrialResult]) -> dict[str, int]:
    return dict(sorted(Counter(each.reason for each in results).items()))


def _draw_trials(axes: Any, results: Sequence[TrialResult]) -> None:
    """Every trial; one that did not reach the target is where it ended, if it was trained at all."""
    reached = [each for each in results if math.isfinite(each.steps)]
    label = f"{len(reached)} trials that reached it"
    axes.scatter([r.trial.batch for r in reached], [r.steps for r in reached], s=14, color="0.7", label=label)
    missed = [each for each in results if math.isinf(each.steps)]
    if missed:
        ended = [(each.trial.batch, each.evaluations[-1][0]) for each in missed if each.evaluations]
        label = f"{len(missed)} that did not, where they ended"
        batches, steps = [batch for batch, _ in ended], [step for _, step in ended]
        axes.scatter(batches, steps, s=14, color="0.7", marker="x", linewidths=0.8, label=label)


def _draw_regimes(axes: Any, study: Study, batches: Sequence[int]) -> None:
    regimes = study.regimes
    if regimes is None:
        return
    for name, shade in (("perfect", "C2"), ("diminishing", "C1"), ("exhausted", "0.5")):
        low, high = regimes[name]
        low, high = max(low, batches[0] / 2), min(high, batches[-1] * 2)
        if low < high:
            axes.axvspan(low, high, color=shade, alpha=0.08)
            # The legend would hide what is inside.
            place = axes.get_xaxis_transform()
            axes.text(math.sqrt(low * high), 1.01, name, transform=place, ha="center", va="bottom", fontsize=9)


def _page(study: Study, results: Sequence[TrialResult], title: str, below: str, picture: bytes) -> str:
    rows = [("batch", "best steps", "examples", "law's steps", "reached", "parameters")]
    for each in _rows(study, results):
        shown = "not reached", ""
        if each["steps"] is not None:
            shown = f"{each['steps']:.1f}", f"{each['examples']:.0f}"
        parameters = ", ".join(f"{name} {value:.3g}" for name, value in (each["parameters"] or {}).items())
        counts = f"{each['reached']} of {each['trials']}"
        rows.append((str(each["batch"]), *shown, f"{each['law_steps']:.1f}", counts, parameters))
    ends = ", ".join(f"{count} {reason}" for reason, count in _reasons(results).items())
    cells = "".join("<tr>" + "".join(f"<td>{html.escape(each)}</td>" for each in row) + "</tr>" for row in rows)
    answer, *cautions = str(study).splitlines()
    image = base64.b64encode(picture).decode()
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        "<style>body{font:16px sans-serif;max-width:70em;margin:2em auto}"
        "td{padding:.2em 1em;border-bottom:1px solid #ccc}"
        f"</style><h1>{html.escape(title)}</h1><p><b>{html.escape(answer)}</b></p>"
        + "".join(f"<p>{html.escape(each)}</p>" for each in cautions)
        + f'<img alt="Steps against batch" src="data:image/png;base64,{image}" style="width:100%">'
        f"<table>{cells}</table>"
        f"<p>{len(results)} trials: {html.escape(ends)}.</p><p>{html.escape(below)}</p></html>\n"
    )
