"""Model cards: a registered version described in Markdown for Hugging Face's hub, from what the store holds."""

from pathlib import Path
from typing import Any

import yaml

from gatehouse.errors import GatehouseError
from gatehouse.metrics.catalogue import METRICS
from gatehouse.metrics.tasks import TASKS
from gatehouse.registry.explanation import Explanation, explain
from gatehouse.registry.stage import RegisterResult
from gatehouse.reports.advice import advised
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
    environment.filters["plain"] = _plain
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
    lines = [f"# {model_name}: {result.decision}", *(f"- {reason}" for reason in reasons)]
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


def _plain(text: str) -> str:
    """Text as Markdown shows it: no markup, one line, no end of a cell."""
    plain = " ".join(text.split())
    for sign in "\\`*_[]<>|":
        plain = plain.replace(sign, f"\\{sign}")
    return plain
