"""What does a study look like: a picture, and one page that needs nothing else?"""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfscale.errors import StudyError
from tfscale.study import Study, TrialResult


def write_report(directory: Path, study: Study, results: Sequence[TrialResult], *, title: str, not_tried: str) -> None:
    """Writes `study.png` and `study.html`.

    Args:
        directory: Where to.
        study: The fit.
        results: All trials.
        title: The target, and what was trained.
        not_tried: What the study does not say.

    Raises:
        StudyError: When matplotlib is not installed.
    """
    picture = _picture(study, results, title)
    (directory / "study.png").write_bytes(picture)
    (directory / "study.html").write_text(_page(study, results, title, not_tried, picture), encoding="utf-8")


def _picture(study: Study, results: Sequence[TrialResult], title: str) -> bytes:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise StudyError(
            "The picture of a study needs matplotlib.\n"
            f'Received: {error}. `pip install "tfscale[study]"`, or give --no-report: study.csv is there.'
        ) from error
    figure = Figure(figsize=(12, 5), layout="constrained")
    FigureCanvasAgg(figure)
    steps, rates = figure.subplots(1, 2)
    batches = sorted({each.trial.batch for each in results})
    _draw_regimes(steps, study, batches)
    reached = [each for each in results if math.isfinite(each.steps)]
    steps.scatter([r.trial.batch for r in reached], [r.steps for r in reached], s=14, color="0.7", label="every trial")
    steps.plot(list(study.best), list(study.best.values()), "ko-", label="best")
    grid = [batches[0] * (batches[-1] / batches[0]) ** (place / 100) for place in range(101)]
    steps.plot(grid, [study.law.steps(each) for each in grid], "C0--", label="S_min (1 + B_crit / B)")
    low, high = study.interval
    steps.axvline(study.b_crit, color="C3", label=f"B_crit {study.b_crit:.3g}")
    steps.axvspan(max(low, batches[0] / 2), min(high, batches[-1] * 2), color="C3", alpha=0.15)
    steps.set(xscale="log", yscale="log", xlabel="batch (examples)", ylabel="steps to the target", title=title)
    steps.legend(fontsize=8)
    name = next(iter(next(iter(study.best_parameters.values()))), None)
    if name is not None:
        rates.plot(list(study.best_parameters), [each[name] for each in study.best_parameters.values()], "ko-")
        tried = [each.trial for each in results]
        rates.scatter([t.batch for t in tried], [t.parameters[name] for t in tried], s=10, color="0.8", zorder=0)
    rates.set(xscale="log", yscale="log", xlabel="batch (examples)", ylabel=f"best {name}", title=f"best {name}")
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()


def _draw_regimes(axes: Any, study: Study, batches: Sequence[int]) -> None:
    regimes = study.regimes
    if regimes is None:
        return
    for name, shade in (("perfect", "C2"), ("diminishing", "C1"), ("exhausted", "0.5")):
        low, high = regimes[name]
        low, high = max(low, batches[0] / 2), min(high, batches[-1] * 2)
        if low < high:
            axes.axvspan(low, high, color=shade, alpha=0.08)
            axes.text(math.sqrt(low * high), 0.98, name, transform=axes.get_xaxis_transform(), ha="center", va="top")


def _page(study: Study, results: Sequence[TrialResult], title: str, not_tried: str, picture: bytes) -> str:
    rows = [("batch", "best steps", "examples", "law's steps", "parameters")]
    for batch, steps in study.best.items():
        parameters = ", ".join(f"{name} {value:.3g}" for name, value in study.best_parameters[batch].items())
        shown = (str(batch), f"{steps:.1f}", f"{steps * batch:.0f}", f"{study.law.steps(batch):.1f}", parameters)
        rows.append(shown)
    reasons: dict[str, int] = {}
    for each in results:
        reasons[each.reason] = reasons.get(each.reason, 0) + 1
    ends = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
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
        f"<p>{len(results)} trials: {html.escape(ends)}.</p><p>Not tried: {html.escape(not_tried)}</p></html>\n"
    )
