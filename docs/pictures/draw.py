"""Draws the pictures of the site, each for light and for dark pages: `make pictures`."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

HERE = Path(__file__).resolve().parent
ROWS = (3, 3, 2, 2)
"""Ten rows on four replicas."""
THEMES = {
    "light": {"ink": "#24292f", "box": "#e7ecfb", "good": "#3f51b5", "bad": "#c2571a"},
    "dark": {"ink": "#e6e6ee", "box": "#363b57", "good": "#9fa8f5", "bad": "#f0a06a"},
}


def main():
    # The same bytes on every run.
    matplotlib.rcParams.update({"svg.hashsalt": "tfscale", "font.size": 13, "svg.fonttype": "path"})
    for draw in PICTURES:
        for theme, colours in THEMES.items():
            names = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
            with matplotlib.rc_context(dict.fromkeys(names, colours["ink"])):
                figure = draw(colours)
                file = HERE / f"{draw.__name__}-{theme}.svg"
                figure.savefig(file, transparent=True, bbox_inches="tight", metadata={"Date": None})
                file.write_text("".join(f"{line.rstrip()}\n" for line in file.read_text().splitlines()))
                plt.close(figure)


def one_reduction(colours):
    """A batch, its parts, one sum, the same update."""
    figure, axes = plt.subplots(figsize=(7.6, 5.2))
    axes.set(xlim=(0, 8), ylim=(0, 5.4))
    axes.axis("off")
    _box(axes, 0.2, 4.6, 7.6, f"one batch: {sum(ROWS)} rows", colours)
    _box(axes, 0.2, 1.6, 7.6, f"one reduction: add up all sums, divide once by {sum(ROWS)}", colours)
    for replica, rows in enumerate(ROWS):
        left = 0.2 + 1.95 * replica
        _box(axes, left, 3.0, 1.75, f"{rows} rows:\nsum of their\ngradients", colours, height=1.1)
        _box(axes, left, 0.1, 1.75, "clip, update:\nas on one\ndevice", colours, height=1.0)
        for begin, end in ((4.6, 4.1), (3.0, 2.2), (1.6, 1.1)):
            _arrow(axes, (left + 0.87, begin), (left + 0.87, end), colours["good"])
    return figure


def weights(colours):
    """What each row counts, in a mean of means and in the one reduction."""
    figure, axes = plt.subplots(figsize=(7.6, 3.6))
    theirs = np.concatenate([np.full(rows, 1 / rows / len(ROWS)) for rows in ROWS])
    ours = np.full(sum(ROWS), 1 / sum(ROWS))
    places = np.arange(sum(ROWS))
    axes.bar(places - 0.2, theirs, 0.4, color=colours["bad"], label="mean of means")
    axes.bar(places + 0.2, ours, 0.4, color=colours["good"], label="one reduction")
    replicas = np.repeat(np.arange(len(ROWS)), ROWS)
    axes.set_xticks(places, [f"{row}\n{'r' + str(replicas[row])}" for row in places])
    axes.set(xlabel="row of the batch, and its replica", ylabel="weight in the update", ylim=(0, 0.17))
    axes.legend(frameon=False, ncols=2, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def clipping(colours):
    """Two gradients: each clipped and then averaged, and averaged and then clipped."""
    parts = np.array([[3.0, 0.4], [-0.2, 0.9]])
    theirs = np.mean([_clipped(part) for part in parts], axis=0)
    ours = _clipped(parts.mean(axis=0))
    figure, axes = plt.subplots(figsize=(7.6, 3.4))
    for part, name in zip(parts, ("replica 0", "replica 1"), strict=True):
        _arrow(axes, (0, 0), part, colours["ink"], style="--")
        axes.annotate(name, part, textcoords="offset points", xytext=(4, 14))
    for arrow, colour, name in (
        (theirs, "bad", "each clipped, then averaged"),
        (ours, "good", "averaged, then clipped"),
    ):
        _arrow(axes, (0, 0), arrow, colours[colour], width=3)
        axes.plot([], [], color=colours[colour], linewidth=3, label=f"{name}: length {np.linalg.norm(arrow):.2f}")
    axes.add_patch(plt.Circle((0, 0), 1, fill=False, color=colours["ink"], linestyle=":"))
    axes.plot([], [], color=colours["ink"], linestyle=":", label="clipnorm 1")
    axes.set(xlim=(-1.1, 4.2), ylim=(-1.1, 1.5), aspect="equal")
    axes.axis("off")
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.41, 0.0), fontsize=11)
    return figure


def _clipped(gradient):
    return gradient * min(1.0, 1.0 / np.linalg.norm(gradient))


def _box(axes, left, bottom, width, text, colours, height=0.6):
    style = "round,pad=0,rounding_size=0.1"
    axes.add_patch(FancyBboxPatch((left, bottom), width, height, boxstyle=style, fc=colours["box"], ec=colours["ink"]))
    axes.text(left + width / 2, bottom + height / 2, text, ha="center", va="center")


def _arrow(axes, begin, end, colour, style="-", width=1.5):
    shape = {"arrowstyle": "-|>", "mutation_scale": 14, "shrinkA": 0, "shrinkB": 0}
    axes.add_patch(FancyArrowPatch(begin, end, color=colour, linestyle=style, linewidth=width, **shape))


PICTURES = (one_reduction, weights, clipping)

if __name__ == "__main__":
    main()
