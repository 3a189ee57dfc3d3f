"""The page of a drift report: the decision, each check, and for each feature what moved, its weight, and why."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gatehouse.monitoring import decision
from gatehouse.monitoring.decision import ALARM, DATA, MOVED, PERFORMANCE, QUALITY, QUIET, Finding
from gatehouse.monitoring.movement import TITLES
from gatehouse.monitoring.stage import FILE
from gatehouse.reports.contents import write_page
from gatehouse.reports.format import in_markdown, moment, percent
from gatehouse.reports.page import Cell, Verdict, render
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

Json = Mapping[str, Any]

_SHOWN = 20
_TIMES = ("decided from", "to")
_STATES = {
    ALARM: Cell("alarm", "bad"),
    MOVED: Cell("drifted", "warn"),
    decision.SEASON: Cell("its season", "warn"),
    decision.CHANCE: Cell("may be chance", "warn"),
    decision.SUPPRESSED: Cell("the model holds", "warn"),
    decision.IGNORED: Cell("ignored", "soft"),
    decision.UNKNOWN: Cell("not judged", "soft"),
    QUIET: Cell("quiet"),
}


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a drift report, as HTML."""
    manifest, body = store.manifest(reference), store.read_json(reference, FILE)
    findings, inputs = _findings(body), manifest.derived_from
    before = "in the baseline" if "baseline" in inputs else "at the gate"
    facts = {
        role: Reference.parse(inputs[role]).short
        for role in ("model", "reference", "baseline", "current")
        if role in inputs
    }
    for name in sorted(body["facts"], key=lambda name: name not in _TIMES):
        facts[name] = moment(body["facts"][name]) if name in _TIMES else body["facts"][name]
    features = [finding for finding in findings if finding.check == DATA and finding.kind]
    # Features with an alarm or a suppressed alarm come first, and some of the others.
    first = max([_SHOWN // 2, *(index + 1 for index, feature in enumerate(features) if feature.state != QUIET)])
    tiles: dict[str, Any] = {"alarms": Cell(len(body["alarms"]), "bad" if body["alarms"] else "")}
    for finding in findings:
        if finding.value is not None and finding.check == DATA and not finding.kind:
            moved = sum(feature.state in (ALARM, MOVED, decision.SUPPRESSED) for feature in features)
            tiles["of the weight drifted"] = percent(finding.value)
            tiles["features drifted"] = f"{moved} of {len(features)}"
    for finding in findings:
        if finding.value is not None and finding.check == PERFORMANCE:
            tiles[f"{finding.name} now"] = Cell(f"{finding.value:.4f}", _STATES[finding.state].mark)
            tiles[f"{finding.name} {before}"] = f"{finding.expected:.4f}"
    return render(
        "monitoring.html",
        f"Monitoring of {manifest.name}",
        "",
        _verdict(body),
        facts=facts,
        tiles=tiles,
        checks=[finding for finding in findings if not finding.kind],
        performance=[
            finding
            for finding in findings
            if finding.check in (PERFORMANCE, decision.CALIBRATION) and finding.value is not None
        ],
        features=features,
        quality=[finding for finding in findings if finding.check == QUALITY and finding.kind],
        by_weight=sorted(features, key=lambda feature: -(feature.weight or 0.0))[:_SHOWN],
        before=before,
        shown=_SHOWN,
        first=first,
        states=_STATES,
        titles=TITLES,
    )


def present(store: ArtifactStore, reference: str, report: Any, summary: Any, metrics: Any) -> None:
    """Fill KFP's typed outputs (HTML, Markdown, Metrics) from a drift report."""
    write_page(store, reference, report.path)
    Path(summary.path).write_text(summary_of(store, reference), encoding="utf-8")
    for name, value in numbers_of(store, reference).items():
        metrics.log_metric(name, value)
    for artifact in (report, summary, metrics):
        artifact.metadata["reference"] = store.address_of(reference)


def summary_of(store: ArtifactStore, reference: str) -> str:
    """The decision and the checks as Markdown."""
    body = store.read_json(reference, FILE)
    findings = _findings(body)

    lines = [f"# {_title(body)}", ""]
    lines += [f"- {in_markdown(reason)}" for reason in body["reasons"]] or ["Nothing asks for a new model."]
    lines += [f"- **alarm:** {in_markdown(alarm)}" for alarm in body["alarms"] if alarm not in body["reasons"]]
    lines += [f"- warning: {in_markdown(warning)}" for warning in body["warnings"]]
    lines += [f"- not judged: {in_markdown(text)}" for text in body["unchecked"]]
    lines += ["", "| check | state | why |", "|---|---|---|"]
    lines += [
        f"| {in_markdown(finding.title)} | {_STATES[finding.state].value} | {in_markdown(finding.why)} |"
        for finding in findings
        if not finding.kind
    ]
    return "\n".join([*lines, "", f"`{reference}`", ""])


def numbers_of(store: ArtifactStore, reference: str) -> dict[str, float]:
    """The value of each check, and the number of alarms."""
    body = store.read_json(reference, FILE)
    values = {finding.title: finding.value for finding in _findings(body) if not finding.kind}
    return {"alarms": float(len(body["alarms"]))} | {
        title: value for title, value in values.items() if value is not None
    }


def _findings(body: Json) -> list[Finding]:
    return [Finding(**fields) for fields in body["findings"]]


def _title(body: Json) -> str:
    if not body["judged"]:
        return "Not judged"
    return "Retrain" if body["decision"] == "retrain" else "Keep the model"


def _verdict(body: Json) -> Verdict:
    alarms = [alarm for alarm in body["alarms"] if alarm not in body["reasons"]]
    retrain = body["decision"] == "retrain"
    todo = ""
    if retrain:
        todo = "train a new candidate: the monitoring pipeline orders it; the gate compares it with this champion."
    elif any(alarm.startswith((QUALITY, decision.FRESHNESS)) for alarm in alarms):
        todo = "look at the source of what alarms: a new model would learn from it, too."
    elif alarms:
        todo = "`monitoring.retrain.on` leaves these to people: to train a new candidate, `gatehouse run`."
    quiet = "No check asks for a new model." if alarms else "No check alarms."
    return Verdict(
        "warn" if retrain or alarms or not body["judged"] else "pass",
        "\n".join([*body["reasons"], *(f"alarm that asks for no new model: {alarm}" for alarm in alarms)]) or quiet,
        (),
        body["warnings"],
        body["unchecked"],
        todo,
        _title(body),
    )
