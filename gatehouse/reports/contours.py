"""A value over two axes as shades of one colour, smoothed from points that lie anywhere."""

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from gatehouse.reports.axes import Point
from gatehouse.reports.charts import with_legend
from gatehouse.reports.format import Html, number
from gatehouse.reports.plots import SIZE, Axis, Layer, frame_of, plot

_ACROSS, _DOWN = 56, 40
_SHADES = 6
_MOST_POINTS = 1500  # Of more, an even sample is smoothed.


def contours(
    points: Sequence[tuple[float, float, float]], x: Axis, y: Axis, value: str, marked: Point, minimize: bool = True
) -> Html:
    """Shades of a value that is known at some points, with a dot at each of them.

    The value of a place is the mean of those of the points, weighted by the inverse square of their distances on the
    axes (Shepard 1968). The darkest shade holds the best values.

    Args:
        points: Place on both axes in numbers of the data, and the value there; all finite.
        x: The horizontal axis.
        y: The vertical axis.
        value: What the value is, for the legend.
        marked: The point that stands out.
        minimize: Whether small values are the best.
    """
    frame = frame_of(x, y)
    kept = points[:: math.ceil(len(points) / _MOST_POINTS) or 1]
    levels = _surface(kept, x, y)
    low, high = (float(one) for one in np.quantile(levels, (0.02, 0.98)))
    edges = np.linspace(low, high, _SHADES + 1)
    shade = np.clip(np.searchsorted(edges, levels) - 1, 0, _SHADES - 1)
    wide, tall = (frame.right - frame.left) / _ACROSS, (frame.bottom - frame.top) / _DOWN
    paths = [""] * _SHADES
    for row in range(_DOWN):
        at = 0
        for level, run in groupby(shade[row].tolist()):
            cells = len(list(run))
            left, top = frame.left + at * wide, frame.bottom - (row + 1) * tall
            paths[level] += f"M{left:.1f},{top:.1f}h{cells * wide:.1f}v{tall:.1f}h{-cells * wide:.1f}z"
            at += cells
    strengths = [0.62 * (1 - level / _SHADES) + 0.02 for level in range(_SHADES)]
    if not minimize:
        strengths.reverse()
    below = [
        f'<path class="f0" shape-rendering="crispEdges" fill-opacity="{strength:.2f}" d="{path}"/>'
        for path, strength in zip(paths, strengths, strict=True)
    ]
    darkest = f"dark: {value} " + (f"below {number(edges[1])}" if minimize else f"above {number(edges[-2])}")
    layers = [
        Layer("", "soft", [(a, b) for a, b, _ in points], faint=len(points) > 200),
        Layer("the best of these", "s1", [marked]),
    ]
    return with_legend(plot(layers, x, y, below=below, size=SIZE), [(darkest, "f0")])


def _surface(points: Sequence[tuple[float, float, float]], x: Axis, y: Axis) -> np.ndarray:
    """Smoothed values by row and column, from the lower left."""
    (x0, x1), (y0, y1) = x.ends, y.ends
    places = np.array([((x.place(a) - x0) / (x1 - x0), (y.place(b) - y0) / (y1 - y0)) for a, b, _ in points])
    across, down = (np.arange(count) / count + 0.5 / count for count in (_ACROSS, _DOWN))
    square = (across[None, :, None] - places[:, 0]) ** 2 + (down[:, None, None] - places[:, 1]) ** 2
    weights = 1 / (square + 1e-3)
    weights *= weights  # Steeper than Shepard's square, so that a far crowd does not outvote what is near.
    smoothed: np.ndarray = (weights @ np.array([value for *_, value in points])) / weights.sum(axis=2)
    return smoothed
