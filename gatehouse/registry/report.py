"""Renders the page of a registered version: answers, numbers, history, and the lineage as a picture."""

from collections.abc import Sequence
from statistics import fmean

from gatehouse.registry.explanation import Edge, Explanation, Node
from gatehouse.reports.format import Html, escape, number
from gatehouse.reports.page import Report
from gatehouse.reports.style import LIGHT
from gatehouse.store.reference import Reference

_WIDTH, _HEIGHT, _GAP, _BETWEEN, _EDGE = 212, 46, 12, 40, 12
_ACROSS = 4  # Boxes side by side that fit a page; more boxes of one step are placed below them.
_LONGEST = 26
_STYLE = (
    f":root {{ {' '.join(f'--{name}: {value};' for name, value in LIGHT.items())} }}"
    " text { font: 12px system-ui, sans-serif; fill: var(--soft); } .label { fill: var(--ink); }"
    " .grid { fill: none; stroke: var(--line); } .axis { stroke: var(--axis); }"
    " .own { fill: var(--a); fill-opacity: 0.28; stroke: var(--a); }"
)


def explanation_page(found: Explanation) -> str:
    """The HTML page of a version."""
    name = f"{found.name}:{found.version}"
    report = Report(name, subtitle=f"{found.stage}; the gate says {found.verdict}")
    report.facts({"model": found.model, "evaluation": found.evaluation} | found.tags)
    for answer in found.answers:
        report.section(answer.question[0].upper() + answer.question[1:])
        if answer.missing:
            report.note(f"Not known: {answer.missing}.")
        report.table(["what", "which"], answer.facts)
    report.section("Numbers on the test part")
    report.table(
        ["number", "value", "low", "high"],
        [[each.name, each.value, each.low, each.high] for each in found.numbers],
        formats=dict.fromkeys(("value", "low", "high"), number),  # They are of different kinds.
    )
    report.section("What happened to it")
    rows = [[each.number, each.at, each.by, each.what, each.reason] for each in found.acts]
    report.table(["record", "at", "by", "what", "why"], rows)
    report.section("Lineage", "From the tables of the sources, at the top, to the model.")
    report.figure(
        lineage_picture(found.nodes, found.edges, name), "Each artifact with its rows; lines lead to what it became."
    )
    return report.html()


def lineage_picture(nodes: Sequence[Node], edges: Sequence[Edge], title: str, *, alone: bool = False) -> Html:
    """A lineage as SVG: sources at the top, one box per artifact, and below them the results of each step.

    Args:
        nodes: The artifacts.
        edges: What was derived from what.
        title: Text alternative of the picture.
        alone: Whether the picture is used outside a page and needs its own style.
    """
    steps = [[each for each in nodes if each.level == level] for level in range(1 + max(each.level for each in nodes))]
    places = _places(steps, edges)
    width = _across(steps) + 2 * _EDGE
    height = max(y for _, y in places.values()) + _HEIGHT + _EDGE
    last = steps[-1][-1].identity
    parts = [_line(places[edge.before], places[edge.after]) for edge in edges]
    parts += [_box(each, places[each.identity], each.identity == last) for each in nodes]
    style = f"<style>{_STYLE}</style>" if alone else ""
    size = f'width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}"'
    label = f'role="img" aria-label="Lineage of {escape(title)}"'
    return Html(f'<svg xmlns="http://www.w3.org/2000/svg" {size} {label}>{style}{"".join(parts)}</svg>')


def _across(steps: Sequence[Sequence[Node]]) -> int:
    return min(max(map(len, steps)), _ACROSS) * (_WIDTH + _GAP) - _GAP


def _places(steps: Sequence[Sequence[Node]], edges: Sequence[Edge]) -> dict[str, tuple[float, float]]:
    """Upper left corner of each box; boxes are below the artifacts they were made from, so that few lines cross."""
    places: dict[str, tuple[float, float]] = {}
    middle, top = _EDGE + _across(steps) / 2, float(_EDGE)

    def wanted(node: Node) -> tuple[float, str]:
        parents = [places[edge.before][0] for edge in edges if edge.after == node.identity and edge.before in places]
        return (fmean(parents) if parents else 0.0, node.identity)

    for step in steps:
        ordered = sorted(step, key=wanted)
        for first in range(0, len(ordered), _ACROSS):
            row = ordered[first : first + _ACROSS]
            left = middle - (len(row) * (_WIDTH + _GAP) - _GAP) / 2
            places |= {node.identity: (left + at * (_WIDTH + _GAP), top) for at, node in enumerate(row)}
            top += _HEIGHT + _GAP
        top += _BETWEEN - _GAP
    return places


def _box(node: Node, place: tuple[float, float], end: bool) -> str:
    (x, y), reference = place, Reference.parse(node.identity)
    name = reference.name if len(reference.name) <= _LONGEST else f"{reference.name[: _LONGEST - 1]}…"
    rows = "" if node.rows is None else f" · {node.rows:,} rows"
    kind, size = "own" if end else "grid", f'width="{_WIDTH}" height="{_HEIGHT}" rx="6"'
    return (
        f'<g><title>{escape(node.identity)}</title><rect class="{kind}" x="{x:.0f}" y="{y:.0f}" {size}/>'
        f'<text class="label" x="{x + 9:.0f}" y="{y + 19:.0f}">{escape(name)}</text>'
        f'<text x="{x + 9:.0f}" y="{y + 36:.0f}">{escape(reference.kind)}{rows}</text></g>'
    )


def _line(before: tuple[float, float], after: tuple[float, float]) -> str:
    x, y, target, end = before[0] + _WIDTH / 2, before[1] + _HEIGHT, after[0] + _WIDTH / 2, after[1]
    middle = (y + end) / 2
    skips = end - y > _BETWEEN and abs(target - x) < _WIDTH / 2
    aside = 0.75 * _WIDTH if skips else 0.0  # Around the boxes between the two.
    curve = f"C{x + aside:.0f} {middle:.0f} {target + aside:.0f} {middle:.0f} {target:.0f} {end:.0f}"
    return f'<path class="grid axis" d="M{x:.0f} {y:.0f}{curve}"/>'
