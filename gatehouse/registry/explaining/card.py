"""Model cards: a registered version described in Markdown for Hugging Face's hub, from what the store holds."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from gatehouse.errors import GatehouseError
from gatehouse.metrics.catalogue import metric_named, metrics
from gatehouse.metrics.tasks import TASKS, Output
from gatehouse.registry.explaining.explanation import ExplainRequest, Explanation, explain
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_KINDS: dict[Output, str] = {
    "probability": "tabular-classification",
    "probabilities": "tabular-classification",
    "prediction": "tabular-regression",
}
_IMPORTANT, _WORST = 10, 5


def model_card(found: Explanation, store: ArtifactStore) -> str:
    """The card of a version: a YAML head, then sections; unknown facts have no section.

    Args:
        found: What is known of the version.
        store: The artifact store with the model and its evaluation.
    """
    evaluation = store.manifest(found.evaluation)
    task = str(evaluation.details.get("task", ""))
    sections: list[tuple[str, Iterable[str]]] = [
        ("Model details", _details(found, task)),
        ("Uses", _uses(found, store)),
        ("Training", _answers(found, "which data", "which configuration", "which seeds")),
        ("Evaluation", _evaluated(found, store)),
        ("Bias, risks and limitations", _limits(found, store)),
        ("Features", _important(found, store)),
        ("Cost", _cost(found, store)),
        ("Environment", _answers(found, "which code", "which environment and image")),
        (
            "History",
            _table(("at", "by", "what", "why"), ((act.at, act.by, act.what, act.reason) for act in found.acts)),
        ),
    ]
    head = yaml.safe_dump(_head(found, task), sort_keys=False, allow_unicode=True)
    parts = [f"---\n{head}---\n", f"# {found.name}, version {found.version}\n"]
    written = ((title, list(lines)) for title, lines in sections)
    return "\n".join([*parts, *(_section(title, lines) for title, lines in written if lines)])


def card_body(model: str, store: ArtifactStore) -> str:
    """The card of a version, such as NAME:2, without its YAML head; or why it cannot be drawn."""
    try:
        return model_card(explain(ExplainRequest(model=model), store), store).split("---\n", 2)[-1]
    except GatehouseError as error:
        return f"The model card cannot be drawn: {error}"


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {title}", "", *lines, ""])


def _head(found: Explanation, task: str) -> dict[str, Any]:
    kind = _KINDS.get(TASKS[task].output, "other") if task else "other"
    data = Reference.parse(next(edge.before for edge in found.edges if edge.role == "training_set"))
    dataset = {"name": data.name, "type": data.kind, "revision": data.digest}
    entries = [{"type": each.name, "value": each.value} for each in found.numbers]
    result = {"task": {"type": kind}, "dataset": dataset, "metrics": entries}
    tags = ["tabular", *([task] if task else []), *(f"{name}:{value}" for name, value in found.tags.items())]
    return {
        "library_name": "gatehouse",
        "pipeline_tag": kind,
        "tags": tags,
        "metrics": [each.name for each in found.numbers],
        "model-index": [{"name": found.name, "results": [result]}],
    }


def _details(found: Explanation, task: str) -> Iterator[str]:
    yield f"- **Stage:** {found.stage}"
    yield f"- **Verdict of the gate:** {found.verdict or 'none'}"
    if task:
        yield f"- **Task:** {task}"
    yield f"- **Model:** `{found.model}`"
    yield f"- **Evaluation:** `{found.evaluation}`"
    yield from _answers(found, "who and why")


def _uses(found: Explanation, store: ArtifactStore) -> Iterator[str]:
    manifest = store.manifest(found.model)
    inputs = store.read_json(found.model, "model.json").get("inputs", {}) if manifest.entry("model.json") else {}
    if inputs:
        yield f"It reads {len(inputs)} features: {', '.join(f'`{name}` ({kind})' for name, kind in inputs.items())}."
        yield ""
    yield from ("```python", f'predictor = Predictor.load(store, "{found.model}")', "predictor.predict(table)", "```")
    if manifest.entry("calibration.json"):
        fitted = store.read_json(found.model, "calibration.json")
        rule = json.dumps(fitted["rule"], sort_keys=True)
        yield ""
        threshold = f"{fitted['threshold']:.4g}"
        yield f"Probabilities are calibrated ({fitted['method']}); positive from {threshold} on ({_text(rule)})."


def _evaluated(found: Explanation, store: ArtifactStore) -> Iterator[str]:
    every: Mapping[str, Mapping[str, float]] = store.read_json(found.evaluation, "metrics.json")
    others = [role for role in ("champion", "baseline") if role in every]
    rows = store.manifest(found.evaluation).details.get("rows")
    yield f"On {rows:,} test rows, which no fit has seen." if rows else "On the test rows."
    yield ""
    interval = ["95 % interval"] if any(each.low is not None for each in found.numbers) else []
    yield from _table(
        ("metric", "this model", *interval, *others),
        (
            (
                *(each.name, _written(each.name, each.value)),
                *(
                    ["" if each.low is None else f"{_written(each.name, each.low)} to {_written(each.name, each.high)}"]
                    if interval
                    else []
                ),
                *(_written(each.name, every[role].get(each.name)) for role in others),
            )
            for each in found.numbers
        ),
    )


def _written(metric: str, value: float | None) -> str:
    if value is None:
        return ""
    # An earlier version may have known other metrics.
    return metric_named(metric).text(value) if metric in metrics() else f"{value:.4g}"


def _limits(found: Explanation, store: ArtifactStore) -> Iterator[str]:
    body = store.read_json(found.evaluation, "verdict.json")
    for rule in body["rules"]:
        if not rule["holds"]:
            name, expected, told = (_text(rule[key]) for key in ("name", "expected", "found"))
            yield f"- The gate's rule *{name}*: expected {expected}, found {told}."
    yield from (f"- {_text(warning)}." for warning in body.get("warnings", ()))
    held = store.manifest(found.evaluation).entry("slices.json")
    slices = store.read_json(found.evaluation, "slices.json") if held else []
    small = [each["name"] for each in slices if not each["judged"]]
    if small:
        yield f"- {len(small)} slices have too few rows to be judged, such as {_text(', '.join(small[:_WORST]))}."
    yield "- Nothing here says how it does on rows unlike those that it was trained on; monitoring watches for them."


def _important(found: Explanation, store: ArtifactStore) -> Iterator[str]:
    """Permutation importance, where the model was probed."""
    for reference in store.references("robustness"):
        if store.manifest(reference).derived_from.get("model") != found.model:
            continue
        told = store.read_json(reference, "robustness.json")
        yield f"By how much `{told['metric']}` gets worse where a feature is shuffled, on {told['rows']:,} test rows."
        yield ""
        shown = told["features"][:_IMPORTANT]
        importances = ((each["name"], each["importance"]) for each in shown)
        rows = ((name, f"{fall['mean']:.4f}", f"{fall['spread']:.4f}") for name, fall in importances)
        yield from _table(("feature", "worse by", "spread"), rows)
        return


def _cost(found: Explanation, store: ArtifactStore) -> Iterator[str]:
    """The newest measurement beside the model."""
    for told in store.measurements(found.model, "evaluate")[:1]:
        latency = told["latency"]
        single = ", ".join(f"{name} {value:g} ms" for name, value in latency["single_row_ms"].items())
        yield f"- **Measured on:** {_text(latency['hardware'])}"
        yield f"- **One row:** {single}"
        batch = f"{latency['batch']['rows']:,}"
        yield f"- **Throughput:** {latency['rows_per_second']:,} rows a second in batches of {batch}"
        yield f"- **Size:** {told['size_bytes'] / 1e6:.2f} MB"
        if "memory_mb" in told:
            yield f"- **Memory:** {told['memory_mb']:.0f} MB at most"


def _answers(found: Explanation, *questions: str) -> Iterator[str]:
    for answer in found.answers:
        if answer.question in questions:
            yield from (f"- **{_text(name)}:** {_text(value)}" for name, value in answer.facts)


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(_text(cell) for cell in row)} |" for row in rows]
    return [f"| {' | '.join(headers)} |", f"|{' --- |' * len(headers)}", *lines] if lines else []


def _text(value: str) -> str:
    """Text as Markdown shows it: no markup, one line, no end of a cell."""
    plain = " ".join(value.split())
    for sign in "\\`*_[]<>|":
        plain = plain.replace(sign, f"\\{sign}")
    return plain
