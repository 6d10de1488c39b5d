"""Can a picture be drawn? Asked before what takes hours, not after it."""

from __future__ import annotations

import importlib.util
from typing import Any

from tfscale.errors import StudyError


def check_drawing(what: str, extra: str, way_out: str) -> None:
    """Checks that matplotlib, which the core does without, is installed.

    Args:
        what: Of what the picture is to be.
        extra: Of tfscale that brings matplotlib.
        way_out: The flag that leaves the picture out, and what is there without it.

    Raises:
        StudyError: When it is not.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise StudyError(
            f"The picture of a {what} needs matplotlib.\n"
            f'Received: it is not installed. `pip install "tfscale[{extra}]"`, or give {way_out}.'
        )


def new_figure(size: tuple[float, float]) -> Any:
    """An empty figure of matplotlib that needs no screen.

    Args:
        size: Width and height, in inches.
    """
    # Half a second, for those who draw.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure
