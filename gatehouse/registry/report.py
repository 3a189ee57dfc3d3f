"""The page of a registered version: answers, numbers, history, and the lineage as a picture."""

from collections.abc import Sequence
from statistics import fmean

from markupsafe import Markup, escape

from gatehouse.registry.explanation import Edge, Explanation, Node
from gatehouse.reports.charts import framed_svg
from gatehouse.reports.format import shortened
from gatehouse.reports.page import COLOURS, render
from gatehouse.store.reference import Reference

_WIDTH, _HEIGHT, _GAP, _BETWEEN, _EDGE = 212, 46, 12, 40, 12
_ACROSS = 4  # Boxes side by side that fit a page; more boxes of one step are placed below them.
_LONGEST = 26
_STYLE = (
    "text { font: 12px system-ui, sans-serif; fill: var(--soft); } .label { fill: var(--ink); }"
    " .page { fill: var(--page); } .grid { fill: none; stroke: var(--line); } .axis { stroke: var(--axis); }"
    " .own { fill: var(--a); fill-opacity: 0.28; stroke: var(--a); }"
)


def explanation_page(explanation: Explanation) -> str:
    """The page of a version, as HTML."""
    name = f"{explanation.name}:{explanation.version}"
    return render(
        "explanation.html",
        name,
        f"{explanation.stage}; the gate says {explanation.verdict}",
        explanation=explanation,
        picture=lineage_picture(explanation.nodes, explanation.edges, name),
    )


def lineage_picture(nodes: Sequence[Node], edges: Sequence[Edge], title: str, *, alone: bool = False) -> Markup:
    """A lineage as SVG: sources at the top, one box per artifact, and below them the results of each step.

    A picture that stands `alone`, outside of a page, has its own style.
    """
    last = max(node.level for node in nodes)
    steps = [[node for node in nodes if node.level == level] for level in range(1 + last)]
    across = min(max(map(len, steps)), _ACROSS) * (_WIDTH + _GAP) - _GAP
    places: dict[str, tuple[float, float]] = {}  # The upper left corner of each box.
    top = float(_EDGE)

    def order(node: Node) -> tuple[float, str]:
        """Below the artifacts that it was made from, so that few lines cross."""
        parents = [places[edge.before][0] for edge in edges if edge.after == node.identity and edge.before in places]
        return (fmean(parents) if parents else 0.0, node.identity)

    for step in steps:
        ordered = sorted(step, key=order)
        for first in range(0, len(ordered), _ACROSS):
            row = ordered[first : first + _ACROSS]
            left = _EDGE + across / 2 - (len(row) * (_WIDTH + _GAP) - _GAP) / 2
            places |= {node.identity: (left + index * (_WIDTH + _GAP), top) for index, node in enumerate(row)}
            top += _HEIGHT + _GAP
        top += _BETWEEN - _GAP
    width, height = across + 2 * _EDGE, max(y for _, y in places.values()) + _HEIGHT + _EDGE
    background = f'<style>{COLOURS}{_STYLE}</style><rect class="page" width="{width}" height="{height:.0f}"/>'
    lines = [_line(places[edge.before], places[edge.after]) for edge in edges]
    boxes = [_box(node, places[node.identity], node is steps[-1][-1]) for node in nodes]
    return framed_svg(width, height, f"Lineage of {title}", [background if alone else "", *lines, *boxes])


def _box(node: Node, place: tuple[float, float], end: bool) -> str:
    (x, y), reference = place, Reference.parse(node.identity)
    rows = "" if node.rows is None else f" · {node.rows:,} rows"
    kind, size = "own" if end else "grid", f'width="{_WIDTH}" height="{_HEIGHT}" rx="6"'
    name = escape(shortened(reference.name, _LONGEST))
    return (
        f'<g><title>{escape(node.identity)}</title><rect class="{kind}" x="{x:.0f}" y="{y:.0f}" {size}/>'
        f'<text class="label" x="{x + 9:.0f}" y="{y + 19:.0f}">{name}</text>'
        f'<text x="{x + 9:.0f}" y="{y + 36:.0f}">{escape(reference.kind)}{rows}</text></g>'
    )


def _line(before: tuple[float, float], after: tuple[float, float]) -> str:
    x, y, target, end = before[0] + _WIDTH / 2, before[1] + _HEIGHT, after[0] + _WIDTH / 2, after[1]
    middle = (y + end) / 2
    skips = end - y > _BETWEEN and abs(target - x) < _WIDTH / 2
    aside = 0.75 * _WIDTH if skips else 0.0  # Around the boxes between the two.
    curve = f"C{x + aside:.0f} {middle:.0f} {target + aside:.0f} {middle:.0f} {target:.0f} {end:.0f}"
    return f'<path class="grid axis" d="M{x:.0f} {y:.0f}{curve}"/>'
