"""The HTML report of a drift check."""

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.monitoring.decision import LabelRate, Moved
from gatehouse.components.reports.charts import bar_chart
from gatehouse.components.reports.page import Report, Verdict

_SHOWN = 30
_NOTHING = "Neither features, scores nor labels moved further than seasons do."


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a drift report: the decision with its reasons, then labels, scores and features, most drifted first.

    Args:
        store: Where the artifact is.
        reference: Of the drift report.
    """
    inputs, found = store.manifest(reference).derived_from, store.read_json(reference, "drift.json")
    moved = [Moved(**column) for column in found["columns"]]
    retrain = found["decision"] == "retrain"
    drawn = Report(
        f"Drift: {found['decision']}",
        f"trained on {Reference.parse(inputs['reference']).short}; current {Reference.parse(inputs['current']).short}",
        Verdict("warn" if retrain or not moved else "pass", "\n".join(found["reasons"]) or _NOTHING),
    )
    drawn.section("Rows").facts(found["facts"])
    if found["label_rate"] is not None:
        label = LabelRate(**found["label_rate"])
        drawn.section("Labels").facts(
            {
                "rate in training": label.trained,
                "rate now": label.current,
                "largest distance of a block of the train rows": label.seasonal,
                "alarm": label.alarm,
            }
        )
    if moved:
        _add_columns(drawn, moved)
    return drawn.html()


def _add_columns(drawn: Report, moved: list[Moved]) -> None:
    ranked = sorted(moved, key=lambda each: (-each.psi / each.alarm, each.name))
    drawn.section(
        "Features",
        "PSI and Jensen-Shannon divergence (bits) of the current rows against the train rows. Seasonal is the largest "
        "PSI that a block of the train rows, as long as the current rows, has against the rest of them: what the "
        "calendar alone does.",
    )
    bars = [(each.name, each.psi / each.alarm) for each in ranked[:_SHOWN]]
    drawn.figures(
        (bar_chart(bars, marker=1.0), "PSI as a multiple of each feature's alarm; the dashed line is the alarm.")
    )
    drawn.table(
        ["feature", "kind", "PSI", "divergence", "seasonal", "alarm", ""],
        [[each.name, each.kind, each.psi, each.divergence, each.seasonal, each.alarm, _state(each)] for each in ranked],
        {index: "warn" for index, each in enumerate(ranked) if each.drifted},
    )


def _state(moved: Moved) -> str:
    if moved.ignored:
        return "ignored"
    return "drifted" if moved.drifted else ""
