"""The page that explains a registered version: answers, numbers, history, and the lineage drawn down to the sources."""

from collections.abc import Sequence
from statistics import fmean

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.registry.explaining.explanation import Edge, Explanation, Node
from gatehouse.components.reports.format import Html, escape
from gatehouse.components.reports.page import Report
from gatehouse.components.reports.style import LIGHT

_WIDTH, _HEIGHT, _GAP, _BETWEEN, _EDGE = 196, 46, 12, 54, 12
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
        ["number", "value", "low", "high"], [[each.name, each.value, each.low, each.high] for each in found.numbers]
    )
    report.section("What happened to it")
    rows = [[each.number, each.at, each.by, each.what, each.reason] for each in found.acts]
    report.table(["record", "at", "by", "what", "why"], rows)
    report.section("Lineage", "From the tables of the sources, on the left, to the model.")
    report.figure(
        lineage_picture(found.nodes, found.edges, name), "Each artifact with its rows; lines lead to what it became."
    )
    return report.html()


def lineage_picture(nodes: Sequence[Node], edges: Sequence[Edge], title: str, *, alone: bool = False) -> Html:
    """A lineage as SVG: sources on the left, a box an artifact, in a column each step from them.

    Args:
        nodes: The artifacts.
        edges: What was derived from what.
        title: What the picture shows, for those who do not see it.
        alone: Whether it stands in no page, and so brings its own style.
    """
    columns = [
        [each for each in nodes if each.level == level] for level in range(1 + max(each.level for each in nodes))
    ]
    places = _places(columns, edges)
    width = len(columns) * (_WIDTH + _BETWEEN) - _BETWEEN + 2 * _EDGE
    height = max(y for _, y in places.values()) + _HEIGHT + _EDGE
    last = columns[-1][-1].identity
    parts = [_line(places[edge.before], places[edge.after]) for edge in edges]
    parts += [_box(each, places[each.identity], each.identity == last) for each in nodes]
    style = f"<style>{_STYLE}</style>" if alone else ""
    size = f'width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}"'
    label = f'role="img" aria-label="Lineage of {escape(title)}"'
    return Html(f'<svg xmlns="http://www.w3.org/2000/svg" {size} {label}>{style}{"".join(parts)}</svg>')


def _places(columns: Sequence[Sequence[Node]], edges: Sequence[Edge]) -> dict[str, tuple[float, float]]:
    """Left upper corner of each box; boxes stand as high as what they were made from, so that few lines cross."""
    places: dict[str, tuple[float, float]] = {}
    tallest = max(map(len, columns)) * (_HEIGHT + _GAP)

    def wanted(node: Node) -> tuple[float, str]:
        parents = [places[edge.before][1] for edge in edges if edge.after == node.identity and edge.before in places]
        return (fmean(parents) if parents else 0.0, node.identity)

    for number, column in enumerate(columns):
        top = _EDGE + (tallest - len(column) * (_HEIGHT + _GAP)) / 2
        for row, node in enumerate(sorted(column, key=wanted)):
            places[node.identity] = (_EDGE + number * (_WIDTH + _BETWEEN), top + row * (_HEIGHT + _GAP))
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
    x, y, end, target = before[0] + _WIDTH, before[1] + _HEIGHT / 2, after[0], after[1] + _HEIGHT / 2
    middle = (x + end) / 2
    curve = f"C{middle:.0f} {y:.0f} {middle:.0f} {target:.0f} {end:.0f} {target:.0f}"
    return f'<path class="grid axis" d="M{x:.0f} {y:.0f}{curve}"/>'
