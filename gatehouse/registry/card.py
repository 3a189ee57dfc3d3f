"""What a person sees of a registered version: its model card, and the page with answers, numbers, history and lineage.

Cards are in Markdown for Hugging Face's hub, from what the store holds; the lineage is a picture.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from markupsafe import Markup, escape

from gatehouse.errors import GatehouseError
from gatehouse.metrics.catalogue import METRICS
from gatehouse.metrics.tasks import TASKS
from gatehouse.registry.explanation import Edge, Explanation, Node, explain
from gatehouse.registry.stage import RegisterResult
from gatehouse.reports.advice import advised
from gatehouse.reports.charts import framed_svg
from gatehouse.reports.format import in_markdown, shortened
from gatehouse.reports.page import render
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore


def model_card(version: Explanation, store: ArtifactStore) -> str:
    """The card of a version, as card.jinja forms it: a YAML head, then sections; unknown facts have no section."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def optional(reference: str, name: str) -> Any:
        return store.read_json(reference, name) if store.manifest(reference).entry(name) else {}

    evaluation, manifest = store.manifest(version.evaluation), store.manifest(version.model)
    tested, external = evaluation.derived_from["training_set"], bool(manifest.details.get("external"))
    values = store.read_json(version.evaluation, "metrics.json")
    roles = [role for role in ("champion", "baseline") if role in values]
    rows = []
    for number in version.numbers:
        name = number.name
        interval = "" if number.low is None else f"{_value(name, number.low)} to {_value(name, number.high)}"
        rows.append([name, _value(name, number.value), interval, *(_value(name, values[r].get(name)) for r in roles)])
    task = str(evaluation.details.get("task", ""))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters["plain"] = in_markdown
    return environment.get_template("card.jinja").render(
        version=version,
        head=yaml.safe_dump(_head(version, task, tested, external), sort_keys=False, allow_unicode=True),
        external=external,
        files=[entry.path for entry in manifest.files],
        task=task,
        inputs=optional(version.model, "model.json").get("inputs", {}),
        calibration=optional(version.model, "calibration.json"),
        rows=evaluation.details.get("rows"),
        metric_headers=["metric", "this model", "95 % interval", *roles],
        metrics=rows,
        verdict={"warnings": []} | store.read_json(version.evaluation, "verdict.json"),
        small_slices=[part["name"] for part in optional(version.evaluation, "slices.json") if not part["judged"]],
        cost=next(iter(store.measurements(version.model, "evaluate")), None),
        history=[(act.at, act.by, act.what, act.reason) for act in version.acts],
    )


def card_body(model: str, store: ArtifactStore) -> str:
    """The card of a version, such as NAME:2, without its YAML head; or why it cannot be drawn."""
    try:
        return model_card(explain(store, model), store).split("---\n", 2)[-1]
    except GatehouseError as error:
        return f"The model card cannot be drawn: {error}"


def registration_summary(model_name: str, result: RegisterResult, store: ArtifactStore) -> str:
    """Decision and reasons of a registration, and the version's model card, as Markdown."""
    reasons = [*advised(result.reasons), *result.warnings, result.summary]
    lines = [
        f"# {in_markdown(model_name)}: {result.decision}",
        "",
        *(f"- {in_markdown(reason)}" for reason in reasons),
        "",
    ]
    if result.version:
        earlier = ": an earlier run registered the same model" if result.decision in ("refused", "inconclusive") else ""
        lines += [f"Version {result.version}, aliases: {', '.join(result.aliases) or 'none'}{earlier}", ""]
        lines.append(card_body(f"{model_name}:{result.version}", store))
    return "\n".join(lines) + "\n"


def _head(version: Explanation, task: str, tested: str, external: bool) -> dict[str, Any]:
    """The facts that Hugging Face's hub reads; without training data in the store, those of the `tested` rows."""
    output = TASKS[task].output if task and not external else ""
    kinds = {"probability": "classification", "probabilities": "classification", "prediction": "regression"}
    kind = f"tabular-{kinds[output]}" if output in kinds else "other"
    data = Reference.parse(next((edge.before for edge in version.edges if edge.role == "training_set"), tested))
    result = {
        "task": {"type": kind},
        "dataset": {"name": data.name, "type": data.kind, "revision": data.digest},
        "metrics": [{"type": number.name, "value": number.value} for number in version.numbers],
    }
    return {
        "library_name": "gatehouse",
        "pipeline_tag": kind,
        "tags": [
            *(name for name in ("" if external else "tabular", task) if name),
            *(f"{name}:{text}" for name, text in version.tags.items()),
        ],
        "metrics": [number.name for number in version.numbers],
        "model-index": [{"name": version.name, "results": [result]}],
    }


def _value(metric: str, value: float | None) -> str:
    """A metric as text; the metric may be of an earlier version, which had others."""
    if value is None:
        return ""
    return METRICS[metric].text(value) if metric in METRICS else f"{value:.4g}"


_WIDTH, _HEIGHT, _GAP, _BETWEEN, _EDGE = 212, 46, 12, 40, 12
_ACROSS = 4  # Boxes side by side that fit a page; more boxes of one step are placed below them.
_LONGEST = 26


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


def lineage_picture(nodes: Sequence[Node], edges: Sequence[Edge], title: str) -> Markup:
    """A lineage as SVG: sources at the top, one box per artifact, and below them the results of each step."""
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
    lines = [_line(places[edge.before], places[edge.after]) for edge in edges]
    boxes = [_box(node, places[node.identity], node is steps[-1][-1]) for node in nodes]
    return framed_svg(width, height, f"Lineage of {title}", [*lines, *boxes])


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
