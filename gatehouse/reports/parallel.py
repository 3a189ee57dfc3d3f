"""Parallel coordinates: one line for each thing, over an axis for each of its numbers or categories."""

from collections.abc import Sequence
from dataclasses import dataclass

from gatehouse.reports.axes import Frame
from gatehouse.reports.charts import framed_svg, with_legend
from gatehouse.reports.format import Html, escape
from gatehouse.reports.plots import Axis

_GAP = 128  # Pixels between two axes.
_HEIGHT = 330
_ABSENT = 30  # How far below the axes the place of what a line does not have lies.


@dataclass(frozen=True)
class Bundle:
    """Lines of one look.

    Attributes:
        name: For the legend.
        style: `s0` to `s3`, or `soft`.
        lines: By line its number on each axis; None where it has none.
        faint: Whether they stand back behind the others.
    """

    name: str
    style: str
    lines: Sequence[Sequence[float | None]]
    faint: bool = False


def parallel(axes: Sequence[Axis], bundles: Sequence[Bundle]) -> Html:
    """Lines over parallel axes, the last bundle on top.

    Args:
        axes: From the left. What stands before the last dot of a label is written above the rest of it.
        bundles: What is drawn.
    """
    width = max(450, 140 + _GAP * len(axes))
    gap = (width - 160) / max(1, len(axes) - 1)
    frames = []
    for at, axis in enumerate(axes):
        left = 108 + at * gap
        low, high = axis.ends
        frames.append(Frame(left, 44, left + 1, _HEIGHT - 24 - _ABSENT, 0, 1, low, high))
    absent = [any(line[at] is None for bundle in bundles for line in bundle.lines) for at in range(len(axes))]
    parts = [_drawn_axis(axis, frame, lacks) for axis, frame, lacks in zip(axes, frames, absent, strict=True)]
    lines = [_bundle(axes, frames, bundle) for bundle in bundles]
    svg = framed_svg(width, _HEIGHT, "Parallel coordinates", [*lines, *parts])
    return with_legend(svg, [(bundle.name, bundle.style) for bundle in bundles if bundle.lines])


def _bundle(axes: Sequence[Axis], frames: Sequence[Frame], bundle: Bundle) -> str:
    paths = []
    for line in bundle.lines:
        placed = [
            f"{frame.left:.0f},{frame.bottom + _ABSENT if value is None else frame.y(axis.place(value)):.0f}"
            for axis, frame, value in zip(axes, frames, line, strict=True)
        ]
        paths.append("M" + "L".join(placed))
    path = "".join(dict.fromkeys(paths))
    return f'<path class="series {bundle.style} thin{" faint" if bundle.faint else ""}" d="{path}"/>'


def _drawn_axis(axis: Axis, frame: Frame, lacks: bool) -> str:
    head, _, tail = axis.label.rpartition(".")
    at = f'x="{frame.left:.0f}"'
    parts = [
        f'<text {at} y="12" text-anchor="middle">{escape(head)}</text>',
        f'<text class="label" {at} y="28" text-anchor="middle">{escape(tail)}</text>',
        f'<line class="axis" x1="{frame.left:.0f}" x2="{frame.left:.0f}" y1="{frame.top}" y2="{frame.bottom}"/>',
    ]
    if lacks:
        parts.append(f'<text class="halo" {at} y="{frame.bottom + _ABSENT + 18}" text-anchor="middle">not set</text>')
    for tick, label in axis.ticks(*axis.ends):
        place = f'x="{frame.left - 6:.0f}" y="{frame.y(tick) + 4:.0f}"'
        parts.append(f'<text class="halo" {place} text-anchor="end">{escape(label)}</text>')
    return "".join(parts)
