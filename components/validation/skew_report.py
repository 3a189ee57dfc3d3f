"""The HTML report of a comparison of training and serving."""

from collections.abc import Sequence

from gatehouse.components.reports.charts import bar_chart
from gatehouse.components.reports.format import percent
from gatehouse.components.reports.page import Report, Verdict
from gatehouse.components.validation.anomalies import Findings
from gatehouse.components.validation.skew_judge import FeatureSkew

_SHOWN = 30


def skew_page(
    training_set: str,
    serving: str,
    rows: tuple[int, int],
    verdict: str,
    reasons: Sequence[str],
    compared: Sequence[FeatureSkew],
    findings: Findings,
) -> str:
    """The page: verdict, anomalies, and every feature, the most moved first.

    Args:
        training_set: Short reference of the training set.
        serving: Short reference of the log.
        rows: Rows of both.
        verdict: `pass`, `fail` or `unjudged`.
        reasons: Of the verdict.
        compared: The features.
        findings: What judging found.
    """
    text = "\n".join(reasons) or "The features that are served are those that were trained on."
    word = "warn" if verdict == "unjudged" else verdict
    page = Report("Training-serving skew", f"trained on {training_set}; served {serving}", Verdict(word, text))
    page.section("Rows").facts({"trained": rows[0], "served": rows[1], "rules judged": findings.judged})
    anomalies = findings.sorted()
    if anomalies:
        page.section("Anomalies").table(
            ["severity", "feature", "rule", "expected", "found"],
            [[one.severity, one.column, one.rule, one.expected, one.observed] for one in anomalies],
            {index: "bad" if one.severity == "fail" else "warn" for index, one in enumerate(anomalies)},
        )
    if findings.not_judged:
        page.section("Not judged", "What could not be judged has not passed.")
        page.table(["what"], [[line] for line in findings.not_judged])
    _features(page, compared, {one.column for one in anomalies})
    return page.html()


def _features(page: Report, compared: Sequence[FeatureSkew], moved: set[str]) -> None:
    page.section("Features", "Distances of the served rows, counted in bins of the training set; most moved first.")
    bars = [(one.feature, one.psi) for one in compared[:_SHOWN] if one.psi is not None]
    if bars:
        page.figures((bar_chart(bars), "Population stability index."))
    shares = ("no value, trained", "no value, served")
    page.table(
        ["feature", "PSI", "JS", "L-infinity", *shares, "mean, trained", "mean, served"],
        [_line(one) for one in compared],
        {index: "bad" for index, one in enumerate(compared) if one.feature in moved},
        dict.fromkeys(shares, percent),
    )


def _line(one: FeatureSkew) -> list[str | float | None]:
    distances = [one.psi, one.js, one.linf]
    return [one.feature, *distances, one.nulls_trained, one.nulls_served, one.mean_trained, one.mean_served]
