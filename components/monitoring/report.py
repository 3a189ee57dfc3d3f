"""The HTML report of a drift check."""

from typing import TYPE_CHECKING

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.monitoring.decision import LabelRate, Moved
from gatehouse.components.reports.charts import bar_chart
from gatehouse.components.reports.page import Report, Verdict

if TYPE_CHECKING:
    from gatehouse.components.monitoring.stage import MonitorRequest

_SHOWN = 30


def drift_report(
    request: "MonitorRequest",
    moved: list[Moved],
    label: LabelRate | None,
    facts: dict[str, str | int],
    decision: str,
    reasons: tuple[str, ...],
) -> str:
    """The page: the decision with its reasons, then labels, scores and features, most drifted first.

    Args:
        request: What was compared.
        moved: Every feature, and the scores where a model was given; empty where there were too few rows.
        label: The label rate, or None where it was not judged.
        facts: Rows and times on both sides.
        decision: `retrain` or `keep`.
        reasons: Of the decision.
    """
    text = "\n".join(reasons) or "Neither features, scores nor labels moved further than seasons do."
    page = Report(
        f"Drift: {decision}",
        f"trained on {Reference.parse(request.reference).short}; current {Reference.parse(request.current).short}",
        Verdict("warn" if decision == "retrain" or not moved else "pass", text),
    )
    page.section("Rows").facts(facts)
    if label is not None:
        page.section("Labels").facts(
            {
                "rate in training": label.trained,
                "rate now": label.current,
                "largest distance of a block of the train rows": label.seasonal,
                "alarm": label.alarm,
            }
        )
    if moved:
        _columns(page, moved)
    return page.html()


def _columns(page: Report, moved: list[Moved]) -> None:
    ranked = sorted(moved, key=lambda each: (-each.psi / each.alarm, each.name))
    page.section(
        "Features",
        "PSI and Jensen-Shannon divergence (bits) of the current rows against the train rows. Seasonal is the largest "
        "PSI that a block of the train rows, as long as the current rows, has against the rest of them: what the "
        "calendar alone does.",
    )
    bars = [(each.name, each.psi / each.alarm) for each in ranked[:_SHOWN]]
    page.figures(
        (bar_chart(bars, marker=1.0), "PSI as a multiple of each feature's alarm; the dashed line is the alarm.")
    )
    page.table(
        ["feature", "kind", "PSI", "divergence", "seasonal", "alarm", ""],
        [[each.name, each.kind, each.psi, each.divergence, each.seasonal, each.alarm, _state(each)] for each in ranked],
        {index: "warn" for index, each in enumerate(ranked) if each.drifted},
    )


def _state(moved: Moved) -> str:
    if moved.ignored:
        return "ignored"
    return "drifted" if moved.drifted else ""
