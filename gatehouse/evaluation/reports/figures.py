"""The figures of an evaluation: the curves that its task has, of each model."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from gatehouse.reports.charts import Series, histogram, line_chart
from gatehouse.reports.format import Html

Curves = Mapping[str, Mapping[str, list[list[float]]]]
_UNIT = (0.0, 1.0)


def figures(curves: Curves, level: float) -> Iterator[tuple[Html, str]]:
    """Each figure and what it shows.

    Args:
        curves: Of each model, the candidate among them, the points of each curve.
        level: Of the test rows' labels.
    """
    for name, (draw, told) in _FIGURES.items():
        if name in curves["candidate"]:
            yield draw(curves, level), told


def _roc(curves: Curves, level: float) -> Html:
    chance = Series("chance", [(0, 0), (1, 1)], True)
    return line_chart([*_lines(curves, "roc"), chance], "false positive rate", "true positive rate", _UNIT, _UNIT)


def _precision_recall(curves: Curves, level: float) -> Html:
    chance = Series("chance", [(0, level), (1, level)], True)
    return line_chart([*_lines(curves, "precision_recall"), chance], "recall", "precision", _UNIT, _UNIT)


def _calibration(curves: Curves, level: float) -> Html:
    return _diagonal(curves, "calibration", "predicted probability", "observed rate")


def _confidence(curves: Curves, level: float) -> Html:
    return _diagonal(curves, "confidence", "probability of the predicted class", "share that is right")


def _diagonal(curves: Curves, name: str, x: str, y: str) -> Html:
    """Shares against what was predicted; on the diagonal both are equal."""
    highest = max(max(point[:2]) for each in curves.values() for point in each[name])
    limit = min(1.0, math.ceil(highest * 10 + 0.01) / 10)
    perfect = Series("perfect", [(0, 0), (limit, limit)], True)
    return line_chart([*_lines(curves, name), perfect], x, y, (0.0, limit), (0.0, limit))


def _predicted(curves: Curves, level: float) -> Html:
    ends = [value for each in curves.values() for point in each["predicted"] for value in point[:2]]
    perfect = Series("perfect", [(min(ends), min(ends)), (max(ends), max(ends))], True)
    return line_chart([*_lines(curves, "predicted"), perfect], "mean prediction", "mean label")


def _scores(curves: Curves, level: float) -> Html:
    bins = curves["candidate"]["histogram"]
    edges = [*(point[0] for point in bins), 1.0]
    groups = [("label 0", [point[1] for point in bins]), ("label 1", [point[2] for point in bins])]
    return histogram(edges, groups, "score", f"share of rows in a bin of {1 / len(bins):g}")


def _residuals(curves: Curves, level: float) -> Html:
    bins = curves["candidate"]["residuals"]
    edges = [point[0] for point in bins]
    edges.append(2 * edges[-1] - edges[-2])
    return histogram(edges, [("candidate", [point[1] for point in bins])], "prediction less label", "share of rows")


def _positions(curves: Curves, level: float) -> Html:
    lines = _lines(curves, "positions")
    best = Series("at best", [(point[0], point[2]) for point in curves["candidate"]["positions"]], True)
    return line_chart([*lines, best], "place", "mean label")


def _lines(curves: Curves, name: str) -> list[Series]:
    marked = name in ("calibration", "confidence", "predicted")
    return [
        Series(role, [(point[0], point[1]) for point in each[name]], marked=marked and role == "candidate")
        for role, each in curves.items()
    ]


_FIGURES: dict[str, tuple[Any, str]] = {
    "roc": (_roc, "ROC: the share of positive rows found, against the negative rows flagged with them."),
    "precision_recall": (_precision_recall, "Precision against recall; the dotted line is what chance gives."),
    "calibration": (
        _calibration,
        "Calibration: the rate that came true against the predicted one, in groups of equal size.",
    ),
    "histogram": (_scores, "The candidate's scores, for rows of either label."),
    "confidence": (
        _confidence,
        "Calibration: how often the predicted class was right, against its probability, in groups of equal size.",
    ),
    "predicted": (_predicted, "Mean label against mean prediction, in groups of equal size by prediction."),
    "residuals": (_residuals, "The candidate's errors; half a percent at either end counts in the bin beside it."),
    "positions": (_positions, "Mean label of the rows at each place of a ranking."),
}
