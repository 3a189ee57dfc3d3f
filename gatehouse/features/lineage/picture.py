"""Draws the lineage of features: sources on the left, one box per table, one line per dependency between columns.

Solid lines lead to values of features; dashed lines decide which rows count. The SVG is self-contained: it has its own
light and dark colours and loads nothing from the network.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from markupsafe import escape

from gatehouse.features.lineage.graph import VALUE, Column, Edge, Lineage
from gatehouse.reports.style import COLOURS

_ROW, _HEAD, _GAP, _BETWEEN, _EDGE, _TOP = 22, 30, 26, 96, 24, 74
_GLYPH, _GLYPH_BOLD = 6.6, 7.7  # Width of an average character, rather too wide than too narrow.
_LEGEND = (("v", "the value is computed from it"), ("r", "decides which rows count"))
_STYLE = (
    " svg { font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif; }"
    " text { fill: var(--ink); } .page { fill: var(--page); } .box { fill: var(--page); stroke: var(--line); }"
    " .head { fill: var(--tint); } .raw .head { fill: var(--good-tint); } .end .head { fill: var(--a); }"
    " .name { font-weight: 600; } .end .name { fill: var(--page); } .title { font-size: 17px; font-weight: 650; }"
    " .soft { fill: var(--soft); } .which { fill: var(--soft); font-style: italic; }"
    " path { fill: none; } .v { stroke: var(--a); stroke-width: 1.6; }"
    " .r { stroke: var(--axis); stroke-width: 1; stroke-dasharray: 4 3; opacity: .8; }"
)


@dataclass
class _Box:
    """One table with its columns and its position."""

    table: str
    columns: list[Column]
    level: int = 0
    left: float = 0.0
    top: float = 0.0

    @property
    def width(self) -> float:
        names = [len(_said(column)) * _GLYPH for column in self.columns]
        return max([*names, len(self.table) * _GLYPH_BOLD]) + 28

    @property
    def height(self) -> float:
        return _HEAD + _ROW * len(self.columns) + 6

    def middle(self, column: Column) -> float:
        return self.top + _HEAD + _ROW * (self.columns.index(column) + 0.5) + 2


def lineage_svg(lineage: Lineage, title: str, description: str = "", known: str = "") -> str:
    """The picture.

    Args:
        lineage: What is drawn.
        title: Title above the picture.
        description: A line below the title.
        known: Since when rows count; printed after the description.
    """
    description = f"{description} {known}".strip()
    edges = _drawn_edges(lineage)
    boxes = _boxes(lineage, edges)
    levels = [[box for box in boxes.values() if box.level == level] for level in range(_deepest(boxes) + 1)]
    width, height = _place(levels, boxes, edges)
    width = max(width, len(title) * 10.5 + 2 * _EDGE, len(description) * _GLYPH + 2 * _EDGE, 470)
    # Value lines are drawn over row lines, and boxes over all lines.
    valued = lineage.value_columns()
    lines = sorted((edge.by == VALUE and edge.after in valued, _curve(boxes, edge)) for edge in edges)
    ends = {column.table for column in lineage.features}
    parts = [
        f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>',
        f'<text class="title" x="{_EDGE}" y="32">{escape(title)}</text>',
        f'<text class="soft" x="{_EDGE}" y="52">{escape(description)}</text>',
        *(f'<path class="{"v" if carries else "r"}" d="{curve}"/>' for carries, curve in lines),
        *(_drawn(box, valued, box.table in ends) for box in boxes.values()),
        _legend(height),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><style>{COLOURS}{_STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _drawn_edges(lineage: Lineage) -> list[Edge]:
    """The edges between tables. A column that decides the rows of a whole table gets one line, not one per column."""
    edges = [edge for edge in lineage.edges if edge.before.table != edge.after.table]
    deciding = {(edge.before, edge.after.table) for edge in edges if not edge.after.name}
    # Two columns have one line: if the value depends on the other column, the row dependency is not drawn.
    valued = {(edge.before, edge.after) for edge in edges if edge.by == VALUE}
    return [
        edge
        for edge in edges
        if edge.by == VALUE
        or not edge.after.name
        or ((edge.before, edge.after.table) not in deciding and (edge.before, edge.after) not in valued)
    ]


def _boxes(lineage: Lineage, edges: Sequence[Edge]) -> dict[str, _Box]:
    """One box per table, each one level to the right of all tables that it reads."""
    columns = dict.fromkeys([*lineage.features, *(column for edge in edges for column in (edge.after, edge.before))])
    boxes: dict[str, _Box] = {}
    for column in columns:
        boxes.setdefault(column.table, _Box(column.table, [])).columns.append(column)
    reads = {(edge.before.table, edge.after.table) for edge in edges}
    for _ in boxes:
        for before, after in reads:
            boxes[after].level = max(boxes[after].level, boxes[before].level + 1)
    # A source is placed next to the first table that reads it.
    for box in boxes.values():
        nexts = [boxes[reader].level for read, reader in reads if read == box.table]
        box.level = min(nexts) - 1 if nexts else box.level
    return boxes


def _deepest(boxes: Mapping[str, _Box]) -> int:
    return max((box.level for box in boxes.values()), default=0)


def _place(levels: list[list[_Box]], boxes: Mapping[str, _Box], edges: Sequence[Edge]) -> tuple[float, float]:
    """Set the position of every box; returns width and height of the picture."""
    tallest = max(sum(box.height + _GAP for box in level) - _GAP for level in levels)
    by_before: dict[Column, list[Edge]] = {}
    for edge in edges:
        by_before.setdefault(edge.before, []).append(edge)

    def height_of(column: Column) -> float:
        return fmean([boxes[edge.after.table].middle(edge.after) for edge in by_before.get(column, [])] or [0.0])

    # From the features back to the sources: each column gets the height of its targets, so that few lines cross.
    for level in reversed(levels):
        for box in level:
            box.columns.sort(key=lambda column: (not column.name, height_of(column), column.name))
        level.sort(key=lambda box: (fmean(height_of(column) for column in box.columns), box.table))
        top = _TOP + (tallest - sum(box.height + _GAP for box in level) + _GAP) / 2
        for box in level:
            box.top = top
            top += box.height + _GAP
    left = float(_EDGE)
    for level in levels:
        for box in level:
            box.left = left
        left += max(box.width for box in level) + _BETWEEN
    return left - _BETWEEN + _EDGE, _TOP + tallest + 56


def _curve(boxes: Mapping[str, _Box], edge: Edge) -> str:
    before, after = boxes[edge.before.table], boxes[edge.after.table]
    x0, y0 = before.left + before.width, before.middle(edge.before)
    x1, y1 = after.left, after.middle(edge.after)
    bend = max(44.0, (x1 - x0) * 0.45)
    return f"M{x0:.1f},{y0:.1f}C{x0 + bend:.1f},{y0:.1f} {x1 - bend:.1f},{y1:.1f} {x1:.1f},{y1:.1f}"


def _drawn(box: _Box, valued: Collection[Column], end: bool) -> str:
    kind = "end" if end else "raw" if any(column.is_source for column in box.columns) else "mid"
    place = f'x="{box.left:.1f}" y="{box.top:.1f}" width="{box.width:.1f}"'
    head = f"M{box.left:.1f},{box.top + _HEAD:.1f}v{8 - _HEAD}q0,-8 8,-8h{box.width - 16:.1f}q8,0 8,8v{_HEAD - 8}z"
    rows = "".join(
        f'<text class="{_class(column, valued)}" x="{box.left + 14:.1f}" y="{box.middle(column) + 4:.1f}">'
        f"{escape(_said(column))}</text>"
        for column in box.columns
    )
    return (
        f'<g class="{kind}"><rect class="box" {place} height="{box.height:.1f}" rx="8"/>'
        f'<path class="head" style="stroke:none" d="{head}"/>'
        f'<text class="name" x="{box.left + 14:.1f}" y="{box.top + 20:.1f}">{escape(box.table)}</text>{rows}</g>'
    )


def _legend(height: float) -> str:
    parts, x = [], float(_EDGE)
    for kind, text in _LEGEND:
        parts.append(f'<path class="{kind}" d="M{x:.0f},{height - 22:.0f}h28"/>')
        parts.append(f'<text class="soft" x="{x + 36:.0f}" y="{height - 18:.0f}">{text}</text>')
        x += 36 + len(text) * _GLYPH + 24
    return "".join(parts)


def _class(column: Column, valued: Collection[Column]) -> str:
    return "which" if not column.name else "own" if column in valued else "soft"


def _said(column: Column) -> str:
    return column.name or "which rows"
