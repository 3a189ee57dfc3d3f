"""Renders the drift report: the decision, each check, and for each feature what moved, how much it matters, and why."""

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gatehouse.monitoring.columns import TITLES
from gatehouse.monitoring.finding import (
    ALARM,
    CALIBRATION,
    CHANCE,
    DATA,
    FRESHNESS,
    HELD,
    IGNORED,
    MOVED,
    PERFORMANCE,
    QUALITY,
    QUIET,
    SEASON,
    UNKNOWN,
    Finding,
)
from gatehouse.monitoring.stage import FILE
from gatehouse.reports.elements import table
from gatehouse.reports.format import moment, percent
from gatehouse.reports.page import Marked, Report, Verdict
from gatehouse.reports.rendering import rendered
from gatehouse.reports.row_charts import Dot, bar_chart, dot_chart
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

Json = Mapping[str, Any]

_SHOWN = 20
_FIRST = (
    "decided from",
    "to",
    "newest rows",
    "of these with a known label",
    "of these whose label is not known yet",
    "logged rows",
    "rows of the reference",
    "train rows",
)
_STATES = {
    ALARM: ("alarm", "bad"),
    MOVED: ("drifted", "warn"),
    SEASON: ("its season", "warn"),
    CHANCE: ("may be chance", "warn"),
    HELD: ("the model holds", "warn"),
    IGNORED: ("ignored", "soft"),
    UNKNOWN: ("not judged", "soft"),
    QUIET: ("", ""),
}


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a drift report: the decision with its reasons, then checks, performance, features and quality.

    Args:
        store: Where the artifact is.
        reference: Reference of the drift report.
    """
    manifest, told = store.manifest(reference), store.read_json(reference, FILE)
    findings = [Finding(**each) for each in told["findings"]]
    drawn = Report(f"Monitoring of {manifest.name}", "", _verdict(told))
    inputs = manifest.derived_from
    roles = {role: Reference.parse(inputs[role]).short for role in ("model", "reference", "current") if role in inputs}
    drawn.facts(roles | {name: _fact(name, told["facts"][name]) for name in _in_order(told["facts"])})
    if findings:
        drawn.tiles(_tiles(told, findings))
        _add_checks(drawn, findings)
        _add_performance(drawn, findings)
        _add_features(drawn, [each for each in findings if each.check == DATA and each.kind])
        _add_quality(drawn, [each for each in findings if each.check == QUALITY and each.kind])
    return drawn.html()


def present(store: ArtifactStore, reference: str, report: Any, summary: Any, metrics: Any) -> None:
    """Fill KFP's typed outputs from a drift report.

    Args:
        store: Where the drift report is.
        reference: Reference of the drift report.
        report: A `dsl.HTML`.
        summary: A `dsl.Markdown`.
        metrics: A `dsl.Metrics`.
    """
    shutil.copyfile(rendered(store, reference), report.path)
    Path(summary.path).write_text(summary_of(store, reference), encoding="utf-8")
    for name, value in numbers_of(store, reference).items():
        metrics.log_metric(name, value)
    for artifact in (report, summary, metrics):
        artifact.metadata["reference"] = store.address_of(reference)


def summary_of(store: ArtifactStore, reference: str) -> str:
    """The decision, the checks and the largest movements as Markdown."""
    told = store.read_json(reference, FILE)
    findings = [Finding(**each) for each in told["findings"]]
    lines = [f"# {_title(told)}", ""]
    lines += [f"- {reason}" for reason in told["reasons"]] or ["Nothing asks for a new model."]
    lines += [f"- **alarm:** {alarm}" for alarm in told["alarms"] if alarm not in told["reasons"]]
    lines += [f"- warning: {warning}" for warning in told["warnings"]]
    lines += [f"- not judged: {each}" for each in told["unchecked"]]
    lines += ["", "| check | state | why |", "|---|---|---|"]
    lines += [f"| {each.title} | {_word(each)} | {_cell(each.why)} |" for each in findings if not each.kind]
    features = [each for each in findings if each.check == DATA and each.kind][:_SHOWN]
    if features:
        lines += ["", "| feature | counts for | found | alarm | season | state |", "|---|---:|---:|---:|---:|---|"]
        lines += [
            f"| {_cell(each.name)} | {each.weight:.1%} | {each.value:.3f} | {each.alarm:.3f} | {each.seasonal:.3f} "
            f"| {_word(each)} |"
            for each in features
        ]
    return "\n".join([*lines, "", f"`{reference}`", ""])


def numbers_of(store: ArtifactStore, reference: str) -> dict[str, float]:
    """The value of each check, and the number of alarms."""
    told = store.read_json(reference, FILE)
    findings = [Finding(**each) for each in told["findings"]]
    found = {each.title: each.value for each in findings if not each.kind and each.value is not None}
    return {"alarms": float(len(told["alarms"])), **found}


def _title(told: Json) -> str:
    if not told["judged"]:
        return "Not judged"
    return "Retrain" if told["decision"] == "retrain" else "Keep the model"


def _verdict(told: Json) -> Verdict:
    others = [alarm for alarm in told["alarms"] if alarm not in told["reasons"]]
    retrain = told["decision"] == "retrain"
    quiet = "No check asks for a new model." if others else "No check alarms."
    todo = ""
    if retrain:
        todo = "train a new candidate: the monitoring pipeline orders it; the gate compares it with this champion."
    elif any(alarm.startswith((QUALITY, FRESHNESS)) for alarm in others):
        todo = "look at the source of what alarms: a new model would learn from it, too."
    elif others:
        todo = "`monitoring.retrain.on` leaves these to people: to train a new candidate, `gatehouse run`."
    return Verdict(
        "warn" if retrain or others or not told["judged"] else "pass",
        "\n".join([*told["reasons"], *(f"alarm that asks for no new model: {each}" for each in others)]) or quiet,
        warnings=tuple(told["warnings"]),
        unchecked=tuple(told["unchecked"]),
        todo=todo,
        title=_title(told),
    )


def _tiles(told: Json, findings: Sequence[Finding]) -> dict[str, Any]:
    features = [each for each in findings if each.check == DATA and each.kind]
    whole = next((each for each in findings if each.check == DATA and not each.kind and each.value is not None), None)
    shown: dict[str, Any] = {"alarms": Marked(len(told["alarms"]), "bad" if told["alarms"] else "")}
    if whole is not None:
        shown["of the weight drifted"] = percent(whole.value)
        moved = sum(each.state in (ALARM, MOVED, HELD) for each in features)
        shown["features drifted"] = f"{moved} of {len(features)}"
    for each in findings:
        if each.check == PERFORMANCE and each.value is not None:
            shown[f"{each.name} now"] = Marked(f"{each.value:.4f}", _STATES[each.state][1])
            shown[f"{each.name} at the gate"] = f"{each.expected:.4f}"
    return shown


def _add_checks(drawn: Report, findings: Sequence[Finding]) -> None:
    shown = [each for each in findings if not each.kind]
    drawn.section("Checks", "What each check found, and why it did or did not alarm.", f"{len(shown):,}")
    rows = [[Marked(f"{each.title}: {_word(each)}", _STATES[each.state][1]), each.why] for each in shown]
    drawn.table(["check", "why"], rows)


def _add_performance(drawn: Report, findings: Sequence[Finding]) -> None:
    """Values at the gate and now, for metrics that were measured."""
    measured = [each for each in findings if each.check in (PERFORMANCE, CALIBRATION) and each.value is not None]
    if not measured:
        return
    drawn.section("Performance", "On rows whose label has become known, with the 95 % interval.")
    drawn.figures(
        *(
            (
                dot_chart(
                    [
                        Dot(
                            each.name,
                            _number(each.value),
                            _number(each.low),
                            _number(each.high),
                            _number(each.expected),
                        )
                    ],
                    each.name,
                    markers=[("alarm", _number(each.alarm))],
                    names=["now", "at the gate"],
                ),
                f"{each.name.capitalize()}: {each.why}.",
            )
            for each in measured
        )
    )


def _add_features(drawn: Report, features: Sequence[Finding]) -> None:
    if not features:
        return
    drawn.section(
        "Features",
        "How far the newest rows are from the reference. The season is the furthest that a block of the reference, as "
        "long as the newest rows, is from the rest of it: what the calendar alone does. It raises the alarm where it "
        "is larger than the flat one. What a feature counts for is its share of the champion's permutation importance.",
        f"{len(features):,}",
    )
    bars = [(each.name, _number(each.value) / _number(each.alarm)) for each in features[:_SHOWN]]
    by_weight = sorted(features, key=lambda each: -(each.weight or 0.0))[:_SHOWN]
    drawn.figures(
        (
            bar_chart(bars, marker=1.0, marker_name="alarm"),
            f"How far each moved, as a multiple of its alarm: the {len(bars)} that came closest.",
        ),
        (
            bar_chart([(each.name, 100 * (each.weight or 0.0)) for each in by_weight]),
            f"What each counts for, in per cent: the {len(by_weight)} that count most.",
        ),
    )
    headers = ["feature", "counts for", "measure", "found", "alarm", "season", "p", "independent rows", "state"]
    rows = [
        [
            each.name,
            percent(each.weight or 0.0),
            TITLES[each.measure],
            *(each.value, each.alarm, each.seasonal),
            "" if each.chance is None else _chance(each.chance),
            "" if each.effective is None else f"{each.effective:,.0f}",
            _state(each),
        ]
        for each in features
    ]
    # Features with an alarm or a suppressed alarm, and some of the others.
    first = max([_SHOWN // 2, *(at + 1 for at, each in enumerate(features) if each.state != QUIET)])
    drawn.table(headers, rows[:first])
    if rest := rows[first:]:
        drawn.folded(f"{len(rest):,} features that moved less", table(headers, rest, label="Features that moved less"))
    told = [each for each in features if each.state not in (QUIET, IGNORED)]
    if told:
        drawn.folded(
            "Why each that moved did or did not alarm",
            table(["feature", "why"], [[each.name, each.why] for each in told]),
        )
    drawn.folded("All distances", _distances(features))


def _distances(features: Sequence[Finding]) -> Any:
    names = [name for name in TITLES if any(name in each.others for each in features)]
    rows = [[each.name, *(each.others.get(name) for name in names)] for each in features]
    return table(["feature", *(TITLES[name] for name in names)], rows, label="All distances")


def _add_quality(drawn: Report, breaches: Sequence[Finding]) -> None:
    if breaches:
        drawn.section("Quality", "", f"{len(breaches):,}")
        drawn.table(
            ["feature", "what", "share", "alarm"],
            [[each.name, each.measure, percent(each.value or 0.0), percent(each.alarm or 0.0)] for each in breaches],
        )


def _state(finding: Finding) -> Marked | str:
    word, mark = _STATES[finding.state]
    return Marked(word, mark) if word else ""


def _in_order(facts: Json) -> list[str]:
    """Names of facts: the time span first, then the newest rows, then the reference."""
    first = [name for name in _FIRST if name in facts]
    return [*first, *(name for name in facts if name not in first)]


def _fact(name: str, value: Any) -> Any:
    return moment(value) if name in _FIRST[:2] else value


def _word(finding: Finding) -> str:
    return _STATES[finding.state][0] or "quiet"


def _chance(chance: float) -> str:
    return "<0.001" if chance < 0.001 else f"{chance:.2g}"


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
