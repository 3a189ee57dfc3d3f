"""The HTML report of an evaluation: verdict, metrics, gate, curves, calibration, slices."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.evaluation.curves import BINS, Curves
from gatehouse.components.evaluation.gate import Comparison, Rule, verdict_of
from gatehouse.components.evaluation.slices import Slice
from gatehouse.components.evaluation.spec import LOWER_IS_BETTER, GatePolicy
from gatehouse.components.reports.charts import Dot, Series, dot_chart, histogram, line_chart
from gatehouse.components.reports.format import Html, percent
from gatehouse.components.reports.page import Marked, Report, Verdict

if TYPE_CHECKING:
    from gatehouse.components.evaluation.stage import EvaluateRequest

TITLES = {
    "roc_auc": "ROC AUC",
    "average_precision": "PR AUC",
    "log_loss": "log loss",
    "brier": "Brier score",
    "calibration_error": "calibration error",
}
_UNIT = (0.0, 1.0)


@dataclass(frozen=True)
class Evaluation:
    """All that was found: labels, scores and metrics by role, the comparison with the champion, slices and rules."""

    labels: Any
    scores: dict[str, Any]
    metrics: dict[str, dict[str, float]]
    comparison: Comparison | None
    slices: tuple[Slice, ...]
    rules: tuple[Rule, ...]

    @property
    def verdict(self) -> str:
        """`pass` or `refused`."""
        return verdict_of(self.rules)


def evaluation_report(request: "EvaluateRequest", found: Evaluation, curves: dict[str, Curves]) -> str:
    """The page. `curves` holds those of every model in `found.scores`."""
    broken = [str(rule) for rule in found.rules if not rule.holds]
    text = "\n".join(broken) or f"The candidate keeps all {len(found.rules)} rules of the policy."
    rate = float(np.mean(found.labels))
    page = Report(
        f"Evaluation of {Reference.parse(request.model).name}",
        f"{len(found.labels):,} test rows, {percent(rate)} of them positive",
        Verdict("pass" if found.verdict == "pass" else "refused", text),
    )
    _add_metrics(page, found, request.policy)
    _add_gate(page, found, request)
    page.section("Curves").figures(
        (_roc(curves), "ROC: the share of positive rows found, against the negative rows flagged with them."),
        (_precision_recall(curves, rate), "Precision against recall; the dotted line is what chance gives."),
        (
            _calibration(curves),
            "Calibration: the rate that came true against the predicted one, in groups of equal size.",
        ),
        (_scores(curves), "The candidate's scores, for rows of either label."),
    )
    _add_slices(page, found, request)
    page.section("Inputs").facts(
        {
            "candidate": request.model,
            "champion": request.champion or "none yet",
            "training set": request.training_set,
            "split": request.split,
        }
    )
    return page.html()


def _add_metrics(page: Report, found: Evaluation, policy: GatePolicy) -> None:
    rows = []
    for metric, title in TITLES.items():
        values = [found.metrics[name][metric] for name in found.metrics]
        best = min(values) if metric in LOWER_IS_BETTER else max(values)
        cells = [Marked(value, "best" if value == best else "") for value in values]
        rows.append([title, *cells, _bar(policy, metric)])
    told = "All on the same test rows. The baseline is logistic regression on the same features."
    if "boosted trees" in found.metrics:
        told += " Boosted trees are shown for comparison, and no rule of the gate looks at them."
    page.section("Metrics", told)
    page.table(["metric", *found.metrics, "bar"], rows)


def _bar(policy: GatePolicy, metric: str) -> str:
    bar = next((bar for name, bar in policy.bars.items() if name == metric), None)
    if bar is None:
        return ""
    bounds = (f"≥ {bar.min:g}" if bar.min is not None else "", f"≤ {bar.max:g}" if bar.max is not None else "")
    return ", ".join(bound for bound in bounds if bound)


def _add_gate(page: Report, found: Evaluation, request: "EvaluateRequest") -> None:
    page.section("Gate", "A candidate passes if every rule of the policy holds.")
    page.table(
        ["", "rule", "expected", "found"],
        [
            [Marked("✓\u00a0holds", "good") if rule.holds else "✕\u00a0broken", rule.name, rule.expected, rule.found]
            for rule in found.rules
        ],
        {index: "bad" for index, rule in enumerate(found.rules) if not rule.holds},
    )
    if found.comparison is None:
        page.note("There is no champion yet: the candidate was compared with the baseline only.")
        return
    one, rule = found.comparison, request.policy.champion
    # Drawn in the metric's own direction: candidate minus champion.
    sign = 1.0 if one.metric in LOWER_IS_BETTER else -1.0
    bounds = sorted((sign * one.worst_bound, sign * one.best_bound))
    mark = "" if one.worst_bound <= rule.tolerance else "bad"
    page.figure(
        dot_chart(
            [Dot("candidate − champion", sign * one.worse_by, bounds[0], bounds[1], mark=mark)],
            f"difference in {TITLES[one.metric]}",
            (("equal", 0.0), ("limit", sign * rule.tolerance)) if rule.tolerance else (("equal", 0.0),),
        ),
        f"The difference in {TITLES[one.metric]} ({'lower' if sign > 0 else 'higher'} is better) with its "
        f"one-sided {rule.confidence:.0%} bounds from {request.spec.bootstrap_samples:,} paired resamples of all rows.",
    )


def _roc(curves: dict[str, Curves]) -> Html:
    lines = [Series(name, _pairs(each["roc"])) for name, each in curves.items()]
    chance = Series("chance", [(0, 0), (1, 1)], True)
    return line_chart([*lines, chance], "false positive rate", "true positive rate", _UNIT, _UNIT)


def _precision_recall(curves: dict[str, Curves], rate: float) -> Html:
    lines = [Series(name, _pairs(each["precision_recall"])) for name, each in curves.items()]
    return line_chart([*lines, Series("chance", [(0, rate), (1, rate)], True)], "recall", "precision", _UNIT, _UNIT)


def _calibration(curves: dict[str, Curves]) -> Html:
    lines = [Series(name, _pairs(each["calibration"]), marked=name == "candidate") for name, each in curves.items()]
    highest = max(max(point[:2]) for each in curves.values() for point in each["calibration"])
    limit = min(1.0, np.ceil(highest * 10 + 0.01) / 10)
    perfect = Series("perfect", [(0, 0), (limit, limit)], True)
    return line_chart([*lines, perfect], "predicted probability", "observed rate", (0.0, limit), (0.0, limit))


def _scores(curves: dict[str, Curves]) -> Html:
    bins = curves["candidate"]["histogram"]
    edges = [*(point[0] for point in bins), 1.0]
    groups = [("label 0", [point[1] for point in bins]), ("label 1", [point[2] for point in bins])]
    return histogram(edges, groups, "score", f"share of rows in a bin of {1 / BINS:g}")


def _pairs(points: list[list[float]]) -> list[tuple[float, float]]:
    return [(point[0], point[1]) for point in points]


def _add_slices(page: Report, found: Evaluation, request: "EvaluateRequest") -> None:
    if not found.slices:
        return
    spec, floor = request.spec, request.policy.slice_min_roc_auc
    overall = found.metrics["candidate"]["roc_auc"]
    page.section(
        "Slices", f"Slices of fewer than {spec.min_slice_rows:,} rows, or of one class only, are shown but not judged."
    )
    shown = [entry for entry in found.slices if entry.roc_auc is not None]
    nan = float("nan")
    dots = [
        Dot(
            entry.name,
            _value(entry.roc_auc),
            _value(entry.low),
            _value(entry.high),
            _value(entry.champion_roc_auc) if entry.champion_roc_auc is not None else nan,
            "soft" if not entry.judged else "bad" if _value(entry.roc_auc) < floor else "",
        )
        for entry in shown
    ]
    champion = "champion" if "champion" in found.metrics else ""
    page.figure(
        dot_chart(
            dots, "ROC AUC", (("floor", floor), ("all rows", overall)), ("candidate", champion) if champion else ()
        ),
        "ROC AUC by slice with its 95 % interval; grey slices are not judged.",
    )
    headers = ["slice", "rows", "label rate", "log loss", "ROC AUC", *([champion] if champion else []), "judged"]
    page.table(
        headers,
        [
            [
                *(entry.name, entry.rows, entry.label_rate, entry.log_loss, entry.roc_auc),
                *([entry.champion_roc_auc] if champion else []),
                "yes" if entry.judged else "no",
            ]
            for entry in found.slices
        ],
        {
            index: "soft" if not entry.judged else "bad"
            for index, entry in enumerate(found.slices)
            if not entry.judged or _value(entry.roc_auc) < floor
        },
        {"label rate": percent},
    )


def _value(number: float | None) -> float:
    return float("nan") if number is None else number
