"""The page of a drift check: the decision, alarms that rang and alarms that seasons hid, every column."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.monitoring.decision import LabelLevel, Moved, flat_alarm, hidden_by_seasons
from gatehouse.components.monitoring.spec import MonitoringSpec
from gatehouse.components.reports.elements import table
from gatehouse.components.reports.format import percent
from gatehouse.components.reports.page import Marked, Report, Verdict
from gatehouse.components.reports.row_charts import bar_chart

Json = Mapping[str, Any]

_SHOWN = 20
_NOTHING = "Neither features, scores nor labels moved further than their alarms."


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a drift report: the decision with its reasons, then labels, scores and features, most drifted first.

    Args:
        store: Where the artifact is.
        reference: Of the drift report.
    """
    manifest, found = store.manifest(reference), store.read_json(reference, "drift.json")
    settings = {name: value for name, value in manifest.configuration.items() if name != "since"}
    spec = MonitoringSpec.model_validate(settings)
    moved = [Moved(**column) for column in found["columns"]]
    label = LabelLevel(**found["label_level"]) if found["label_level"] else None
    hidden = hidden_by_seasons(spec, moved, label) if label else []
    verdict = _verdict(found, moved, hidden, "model" in manifest.derived_from)
    drawn = Report(f"Drift of {manifest.name}", "", verdict)
    facts = {role: Reference.parse(manifest.derived_from[role]).short for role in ("reference", "current")}
    drawn.facts({"trained on": facts["reference"], "current": facts["current"]})
    drawn.tiles(found["facts"])
    if moved:
        _add_columns(drawn, moved, spec)
    if label:
        _add_label(drawn, label)
    return drawn.html()


def _verdict(found: Json, moved: Sequence[Moved], hidden: Sequence[str], scored: bool) -> Verdict:
    retrain, text = found["decision"] == "retrain", "\n".join(found["reasons"]) or _NOTHING
    unchecked = [
        f"{each.name}: its PSI of {each.psi:.2f} is shown only, as `ignore` names it" for each in moved if each.ignored
    ]
    if not scored:
        unchecked.append("scores: no model was given")
    if not moved:
        return Verdict("warn", text, unchecked=("all columns and labels: see above",), title="Not judged")
    single = [
        f"{each.name}: a PSI of {each.psi:.2f} is above its alarm of {each.alarm:.2f}; alone it asks for no new model"
        for each in moved
        if each.drifted and not retrain
    ]
    return Verdict(
        "warn" if retrain else "pass",
        text,
        warnings=(*single, *hidden),
        unchecked=tuple(unchecked),
        todo="train a new candidate, with `gatehouse run`; the gate compares it with this champion." if retrain else "",
        title="Retrain" if retrain else "Keep the model",
    )


def _add_columns(drawn: Report, moved: Sequence[Moved], spec: MonitoringSpec) -> None:
    ranked = sorted(moved, key=lambda each: (-each.psi / each.alarm, each.name))
    drawn.section(
        "Columns",
        "PSI and Jensen-Shannon divergence (bits) of the current rows against the train rows. The season is the "
        "largest PSI that a block of the train rows, as long as the current rows, has against the rest of them: what "
        "the calendar alone does. It raises the alarm where it is larger than the flat one.",
        f"{len(moved):,}",
    )
    bars = [(each.name, each.psi / each.alarm) for each in ranked[:_SHOWN]]
    drawn.figure(
        bar_chart(bars, marker=1.0, marker_name="alarm"),
        f"PSI as a multiple of each column's alarm, the {len(bars)} that came closest to it.",
    )
    headers = ["column", "kind", "PSI", "divergence", "season", "flat alarm", "alarm", ""]
    rows = [
        [
            *(each.name, each.kind, each.psi, each.divergence, each.seasonal, flat_alarm(spec, each.kind), each.alarm),
            _state(each, spec),
        ]
        for each in ranked
    ]
    # What rang or would have rung, and some of the others.
    first = max([_SHOWN // 2, *(at + 1 for at, row in enumerate(rows) if row[-1])])
    drawn.table(headers, rows[:first])
    if rest := rows[first:]:
        drawn.folded(f"{len(rest):,} columns that moved less", table(headers, rest, label="Columns that moved less"))


def _state(moved: Moved, spec: MonitoringSpec) -> Marked | str:
    if moved.ignored:
        return Marked("ignored", "soft")
    if moved.drifted:
        return Marked("drifted", "bad")
    return Marked("hidden by its season", "warn") if moved.psi > flat_alarm(spec, moved.kind) else ""


def _add_label(drawn: Report, label: LabelLevel) -> None:
    """Shares in percent, and other levels as numbers."""
    shown = {
        "in training": label.trained,
        "now": label.current,
        "moved by": abs(label.current - label.trained),
        "season": label.seasonal,
        "flat alarm": label.flat,
        "alarm": label.alarm,
    }
    drawn.section(label.title.capitalize()).table(
        list(shown),
        [[percent(value) if label.is_share else value for value in shown.values()]],
        {0: "bad"} if label.drifted else None,
    )
