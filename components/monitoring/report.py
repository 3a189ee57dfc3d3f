"""The HTML report of a drift check."""

from typing import TYPE_CHECKING

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.reports.charts import bar_chart
from gatehouse.components.reports.page import Report, Verdict

if TYPE_CHECKING:
    from gatehouse.components.monitoring.stage import MonitorRequest


def drift_report(
    request: "MonitorRequest",
    features: dict[str, float],
    rates: tuple[float, float],
    rows: int,
    decision: str,
    reasons: tuple[str, ...],
) -> str:
    """The page: decision, label rate, and the index of every feature, most drifted first."""
    spec = request.spec
    if rows < spec.min_rows:
        text = f"Only {rows:,} current rows, fewer than {spec.min_rows:,}: not judged."
    else:
        text = "\n".join(reasons) or "Neither features nor labels moved enough to ask for a new model."
    page = Report(
        "Drift",
        f"trained on {Reference.parse(request.reference).short}; current {Reference.parse(request.current).short}",
        Verdict("warn" if decision == "retrain" or rows < spec.min_rows else "pass", text),
    )
    page.section("Labels").facts({"rate in training": rates[0], "rate now": rates[1], "current rows": rows})
    ranked = sorted(features.items(), key=lambda item: (-item[1], item[0]))
    page.section("Features", "Population stability index against the train rows; the dashed line is the alarm.")
    page.figures((bar_chart(ranked, marker=spec.psi_alarm), "PSI by feature."))
    page.table(
        ["feature", "PSI", ""],
        [[name, value, _state(name, value, request)] for name, value in ranked],
        {index: "warn" for index, (name, value) in enumerate(ranked) if _state(name, value, request) == "drifted"},
    )
    return page.html()


def _state(name: str, value: float, request: "MonitorRequest") -> str:
    if name in request.spec.ignore:
        return "ignored"
    return "drifted" if value > request.spec.psi_alarm else ""
