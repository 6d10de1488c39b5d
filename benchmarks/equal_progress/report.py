"""How far did each run come: as tables, and as curves over examples seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np

from benchmarks.equal_progress.published import PUBLISHED

# The backend is chosen first: there may be no display.
matplotlib.use("Agg")
from matplotlib import pyplot as plt

# Up to this ratio a re-derived run must come as far as the reference; at the last one, farther than one left alone.
EQUAL_UP_TO, BETTER_AT = 4, 8


@dataclass(frozen=True)
class Run:
    """One training run."""

    recipe: str
    num_replicas: int
    scaled: bool
    """Whether the recipe was re-derived for the larger batch; of one replica, always."""
    seed: int
    accuracy: float
    """On the test images, after the last epoch."""
    loss: list[float]
    """On the test images, after every epoch."""
    examples: list[int]
    """Seen until then."""


@dataclass(frozen=True)
class Sample:
    """The accuracies of runs that differ in the seed alone, in percent."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return float(np.mean(self.values))

    @property
    def standard_error(self) -> float:
        """Of the mean."""
        return float(np.std(self.values, ddof=1) / np.sqrt(len(self.values))) if len(self.values) > 1 else 0.0

    def __str__(self) -> str:
        return f"{self.mean:.2f} +- {self.standard_error:.2f}"


@dataclass(frozen=True)
class Row:
    """One recipe at one ratio."""

    recipe: str
    ratio: int
    reference: Sample
    scaled: Sample
    left_alone: Sample

    @property
    def passed(self) -> bool | None:
        """Whether the bar of this ratio is reached; None where there is none."""
        if self.ratio <= EQUAL_UP_TO:
            return self.scaled.mean >= self.reference.mean - self.reference.standard_error
        return self.scaled.mean > self.left_alone.mean if self.ratio == BETTER_AT else None


def compare(runs: Sequence[Run]) -> list[Row]:
    """One row per recipe and ratio above 1."""
    rows = []
    for recipe in dict.fromkeys(run.recipe for run in runs if run.recipe != PUBLISHED):
        for ratio in sorted({run.num_replicas for run in runs} - {1}):
            reference, scaled, alone = (
                _sample(runs, recipe, replicas, is_scaled)
                for replicas, is_scaled in ((1, True), (ratio, True), (ratio, False))
            )
            rows.append(Row(recipe, ratio, reference, scaled, alone))
    return rows


def _sample(runs: Sequence[Run], recipe: str, num_replicas: int, scaled: bool) -> Sample:
    found = [run for run in runs if (run.recipe, run.num_replicas, run.scaled) == (recipe, num_replicas, scaled)]
    return Sample(tuple(100 * run.accuracy for run in found))


def render(rows: Sequence[Row]) -> str:
    """The table of final accuracies."""
    verdicts = {None: "", True: "ok", False: "MISSED"}
    cells = [("recipe", "replicas", "1 replica", "re-derived", "left alone", "")]
    cells += [
        (row.recipe, str(row.ratio), str(row.reference), str(row.scaled), str(row.left_alone), verdicts[row.passed])
        for row in rows
    ]
    return (
        "Test accuracy in %, mean and standard error; per-replica batch fixed.\n"
        f"Up to ratio {EQUAL_UP_TO} re-derived must be within one standard error of 1 replica, or above; at "
        f"{BETTER_AT} above what was left alone.\n\n{_table(cells)}\n"
    )


def render_published(runs: Sequence[Run]) -> str:
    """How far apart the loss curves of the published experiment are."""
    rows = [("left alone", False), ("re-derived", True)]
    reference = _curve(runs, PUBLISHED, 1, True)
    cells = [("plain SGD on 2 replicas", "final test loss", "distance from 1 replica")]
    cells += [("(1 replica)", f"{reference[-1]:.4f}", "")]
    for name, scaled in rows:
        curve = _curve(runs, PUBLISHED, 2, scaled)
        cells.append((name, f"{curve[-1]:.4f}", f"{np.mean(np.abs(np.log(curve / reference))):.3f}"))
    return f"{_table(cells)}\n\nDistance: mean over epochs of |log(loss / loss of 1 replica)|."


def _curve(runs: Sequence[Run], recipe: str, num_replicas: int, scaled: bool) -> np.ndarray:
    """The test loss after each epoch, mean over seeds."""
    found = [run.loss for run in runs if (run.recipe, run.num_replicas, run.scaled) == (recipe, num_replicas, scaled)]
    return np.mean(found, axis=0)


def _table(cells: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in cells)


def draw(runs: Sequence[Run], path: Path) -> None:
    """One panel per recipe: the test loss over examples seen."""
    titles = list(dict.fromkeys(run.recipe for run in runs))
    figure, axes = plt.subplots(1, len(titles), figsize=(4.2 * len(titles), 4), layout="constrained")
    for axis, recipe in zip(axes, titles, strict=True):
        for num_replicas in sorted({run.num_replicas for run in runs if run.recipe == recipe}):
            for scaled in (True, False) if num_replicas > 1 else (True,):
                name = "" if num_replicas == 1 else ", re-derived" if scaled else ", left alone"
                [examples] = {tuple(run.examples) for run in runs if run.recipe == recipe}
                axis.plot(
                    examples,
                    _curve(runs, recipe, num_replicas, scaled),
                    color="black" if num_replicas == 1 else f"C{num_replicas.bit_length() - 2}",
                    linestyle="-" if scaled else ":",
                    linewidth=3 if num_replicas == 1 else 1.5,
                    alpha=0.5 if num_replicas == 1 else 1,
                    label=f"{num_replicas}{name}",
                )
        axis.set(title=recipe, xlabel="examples seen", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test loss")
    axes[0].legend(title="replicas", fontsize="small")
    figure.suptitle("The same progress per example, whatever the number of replicas: digits, per-replica batch fixed")
    figure.savefig(path, dpi=110)
    plt.close(figure)
