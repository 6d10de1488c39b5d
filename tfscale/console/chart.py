"""Lines and bars as SVG, in the colours of the page."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

Points = Sequence[tuple[float, float]]
_WIDTH, _HEIGHT = 420.0, 230.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 12.0, 10.0, 34.0
_COLOURS = 6
_MOST_POINTS = 600


def lines(
    title: str, series: Mapping[str, Points], *, x: str, y: str, log_y: bool = False, marks: Sequence[float] = ()
) -> str:
    """Returns a figure of lines; what is not finite leaves a gap.

    Args:
        title: Above it.
        series: By name the points (x, y).
        x: Name of the axis.
        y: Likewise, with its unit.
        log_y: Whether y is drawn by its logarithm; points at 0 and below are left out then.
        marks: Where vertical lines stand.

    Returns:
        HTML; a figure that says so where there is nothing to draw.
    """
    kept = {name: _kept(points, log_y) for name, points in series.items()}
    kept = {name: runs for name, runs in kept.items() if runs}
    every = [point for runs in kept.values() for run in runs for point in run]
    if not every:
        return f"<figure><figcaption>{html.escape(title)}</figcaption><p class=quiet>Nothing was noted.</p></figure>"
    low_x, high_x = _range([at for at, _ in every])
    low_y, high_y = _range([_scaled(value, log_y) for _, value in every])

    def place(point: tuple[float, float]) -> tuple[float, float]:
        across = (point[0] - low_x) / (high_x - low_x)
        up = (_scaled(point[1], log_y) - low_y) / (high_y - low_y)
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)

    drawn = [*_axes((low_x, high_x), (low_y, high_y), x, y, log_y)]
    for at in marks:
        if low_x <= at <= high_x:
            across = place((at, every[0][1]))[0]
            drawn.append(
                f'<line x1="{across:.1f}" x2="{across:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="var(--c4)" '
                'stroke-dasharray="3 3"/>'
            )
    for index, runs in enumerate(kept.values()):
        colour = f"var(--c{index % _COLOURS})"
        for run in runs:
            text = " ".join(f"{across:.1f},{down:.1f}" for across, down in map(place, run))
            drawn.append(f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
            if len(run) <= 40:
                drawn += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.2" fill="{colour}"/>' for a, b in map(place, run)]
    return (
        f"<figure><figcaption>{html.escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{html.escape(title)}">{"".join(drawn)}</svg>'
        f"{_legend(list(kept)) if len(kept) > 1 else ''}</figure>"
    )


def shares(title: str, parts: Mapping[str, float]) -> str:
    """Returns a figure of one bar, divided as its parts are, in seconds."""
    total = sum(parts.values())
    if not total > 0:
        return f"<figure><figcaption>{html.escape(title)}</figcaption><p class=quiet>Nothing was noted.</p></figure>"
    drawn, at = [], 0.0
    for index, value in enumerate(parts.values()):
        width = value / total * _WIDTH
        drawn.append(f'<rect x="{at:.2f}" y="0" width="{width:.2f}" height="26" fill="var(--c{index % _COLOURS})"/>')
        at += width
    named = [f"{name} {value:.3g} s, {100 * value / total:.0f} %" for name, value in parts.items()]
    return (
        f"<figure><figcaption>{html.escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH:g} 26" role="img" aria-label="{html.escape(title)}">{"".join(drawn)}</svg>'
        f"{_legend(named)}</figure>"
    )


def _legend(names: Sequence[str]) -> str:
    items = [
        f'<span><i style="background:var(--c{index % _COLOURS})"></i>{html.escape(name)}</span>'
        for index, name in enumerate(names)
    ]
    return f'<div class="legend">{"".join(items)}</div>'


def _kept(points: Points, log_y: bool) -> list[list[tuple[float, float]]]:
    """The points that can be drawn, in runs without a gap; of very many, evenly chosen ones."""
    points = points[:: max(1, math.ceil(len(points) / _MOST_POINTS))]
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if math.isfinite(at) and math.isfinite(value) and (value > 0 or not log_y):
            runs[-1].append((at, value))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _scaled(value: float, log_y: bool) -> float:
    return math.log10(value) if log_y else value


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    some = 0.5 * abs(low) or 0.5
    return low - some, high + some


def _axes(across: tuple[float, float], up: tuple[float, float], x: str, y: str, log_y: bool) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    drawn = []
    for tick in _ticks(*up):
        at = bottom - (tick - up[0]) / (up[1] - up[0]) * (bottom - _TOP)
        text = f"{10**tick if log_y else tick:.4g}"
        drawn.append(f'<line x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--line)"/>')
        drawn.append(f'<text x="{_LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{text}</text>')
    for tick in _ticks(*across):
        at = _LEFT + (tick - across[0]) / (across[1] - across[0]) * (right - _LEFT)
        drawn.append(f'<text x="{at:.1f}" y="{bottom + 14}" text-anchor="middle">{tick:.5g}</text>')
    drawn.append(f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 4}" text-anchor="middle">{html.escape(x)}</text>')
    middle = (_TOP + bottom) / 2
    drawn.append(
        f'<text x="9" y="{middle}" text-anchor="middle" transform="rotate(-90 9 {middle})">{html.escape(y)}</text>'
    )
    return drawn


def _ticks(low: float, high: float) -> list[float]:
    """Three round numbers or more, as few as there may be."""
    size = 10.0 ** math.floor(math.log10((high - low) / 2))
    for step in (size * each for each in (10, 5, 2, 1, 0.5)):
        places = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        if len(places) >= 3:
            return [step * place for place in places]
    return [low]
