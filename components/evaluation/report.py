"""The HTML report of an evaluation: verdict, metrics, curves, calibration, slices."""

from typing import TYPE_CHECKING, Any

import numpy as np

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.evaluation.gate import Rule
from gatehouse.components.evaluation.slices import Slice
from gatehouse.components.reports.charts import Series, bar_chart, line_chart
from gatehouse.components.reports.page import Report, Verdict
from gatehouse.components.tracking.metrics import calibration_curve, precision_recall_curve, roc_curve

if TYPE_CHECKING:
    from gatehouse.components.evaluation.stage import EvaluateRequest

_POINTS = 200
_UNIT = (0.0, 1.0)
_TITLES = {
    "roc_auc": "ROC AUC",
    "average_precision": "PR AUC",
    "log_loss": "log loss",
    "brier": "Brier score",
    "calibration_error": "calibration error",
}


def evaluation_report(
    request: "EvaluateRequest",
    verdict: str,
    rules: tuple[Rule, ...],
    labels: Any,
    scores: dict[str, Any],
    metrics: dict[str, dict[str, float]],
    slices: list[Slice],
) -> str:
    """The page. `scores` and `metrics` hold `candidate`, `baseline` and, where there is one, `champion`."""
    broken = [str(rule) for rule in rules if not rule.holds]
    against = Reference.parse(request.champion).short if request.champion else "no champion yet"
    text = "The candidate keeps every rule of the policy." if not broken else "\n".join(broken)
    page = Report(
        f"Evaluation of {Reference.parse(request.model).name}",
        f"candidate {Reference.parse(request.model).short}; champion: {against}; {len(labels):,} test rows, "
        f"{labels.mean():.1%} positive",
        Verdict("pass" if verdict == "pass" else "refused", text),
    )
    who = [name for name in ("candidate", "champion", "baseline") if name in metrics]
    rows = [[title, *(metrics[name][metric] for name in who)] for metric, title in _TITLES.items()]
    page.section("Metrics", "On the same test rows; the baseline is logistic regression on the same features.")
    page.table(["metric", *who], rows)
    page.section("Gate")
    page.table(
        ["rule", "expected", "found", ""],
        [[rule.name, rule.expected, rule.found, "holds" if rule.holds else "broken"] for rule in rules],
        {index: "bad" for index, rule in enumerate(rules) if not rule.holds},
    )
    page.section("Curves").figures(
        (_roc(labels, scores, who), "ROC: how many late rows are found for how many false alarms."),
        (_precision_recall(labels, scores, who), "Precision against recall; the dashed line is the label rate."),
        (_calibration(labels, scores, who, request), "Calibration: observed rate against predicted probability."),
        (_history(scores["candidate"], labels), "Share of rows by score, for both labels."),
    )
    _add_slices(page, slices, metrics["candidate"]["roc_auc"])
    return page.html()


def thin(points: list[Any]) -> list[tuple[float, ...]]:
    """At most `_POINTS` points of a curve, with its ends, as plain numbers."""
    chosen = np.unique(np.linspace(0, len(points) - 1, min(len(points), _POINTS)).astype(int))
    return [tuple(float(value) for value in points[index]) for index in chosen]


def _pairs(x: Any, y: Any) -> list[tuple[float, float]]:
    return [(point[0], point[1]) for point in thin(list(zip(x, y, strict=True)))]


def _roc(labels: Any, scores: dict[str, Any], who: list[str]) -> str:
    lines = [Series(name, _pairs(*roc_curve(labels, scores[name])[:2])) for name in who]
    return line_chart([*lines, Series("chance", [(0, 0), (1, 1)], True)], "false positive rate", "true positive rate", _UNIT, _UNIT)


def _precision_recall(labels: Any, scores: dict[str, Any], who: list[str]) -> str:
    lines = [Series(name, _pairs(*precision_recall_curve(labels, scores[name]))) for name in who]
    rate = float(labels.mean())
    return line_chart([*lines, Series("label rate", [(0, rate), (1, rate)], True)], "recall", "precision", _UNIT, _UNIT)


def _calibration(labels: Any, scores: dict[str, Any], who: list[str], request: "EvaluateRequest") -> str:
    bins = request.spec.calibration_bins
    lines = [Series(name, _pairs(*calibration_curve(labels, scores[name], bins)[:2])) for name in who]
    return line_chart([*lines, Series("perfect", [(0, 0), (1, 1)], True)], "predicted probability", "observed rate", _UNIT, _UNIT)


def _history(scores: Any, labels: Any) -> str:
    edges = np.linspace(0, 1, 41)
    middles = (edges[1:] + edges[:-1]) / 2
    lines = []
    for value, name in ((0, "label 0"), (1, "label 1")):
        counts = np.histogram(scores[labels == value], edges)[0]
        lines.append(Series(name, _pairs(middles, counts / max(counts.sum(), 1))))
    return line_chart(lines, "score", "share of rows", x_range=_UNIT)


def _add_slices(page: Report, slices: list[Slice], overall: float) -> None:
    if not slices:
        return
    page.section("Slices", "Slices with too few rows, or one class only, are listed but not judged by the gate.")
    page.figures(
        (
            bar_chart([(entry.name, entry.roc_auc) for entry in slices if entry.judged], marker=overall),
            "ROC AUC by slice; the dashed line is the whole test part.",
        )
    )
    page.table(
        ["slice", "rows", "label rate", "ROC AUC", "log loss", "judged"],
        [
            [entry.name, entry.rows, entry.label_rate, entry.roc_auc, entry.log_loss, "yes" if entry.judged else "no"]
            for entry in slices
        ],
    )
