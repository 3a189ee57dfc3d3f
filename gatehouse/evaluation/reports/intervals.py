"""Numbers with their intervals, and the candidate against the champion in every metric."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.evaluation.rules.champion import ChampionRule
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.metric import Metric
from gatehouse.reports.elements import Marked
from gatehouse.reports.format import Html, escape
from gatehouse.reports.page import Report

Json = Mapping[str, Any]


def estimate(metric: Metric, value: float | None, ends: Sequence[float] | None) -> Html | None:
    """A value over its 95 % interval, where one is its own; None for no value."""
    if value is None:
        return None
    below = (
        f"<small>{' to '.join(escape(metric.text(end)) for end in ends)}</small>"
        if ends and metric.has_interval
        else ""
    )
    return Html(f"{escape(metric.text(value))}{below}")


def told(uncertainty: Json) -> str:
    """What was drawn for the intervals, in a sentence."""
    unit, number = uncertainty["unit"], uncertainty["units"]
    drawn = f"{number:,} {unit}s" if unit in ("row", "group", "day") else f"{number:,} values of {unit}"
    return (
        f"Below each number stands its 95 % interval, from {uncertainty['samples']:,} resamples of {drawn}, the same "
        "for all models."
    )


def add_comparisons(drawn: Report, comparisons: Json, judged_by: str, rule: ChampionRule) -> None:
    """The difference in every metric, with its bounds and the smallest regression that the test rows can show."""
    if not comparisons:
        drawn.note("The other metrics were not compared: this evaluation was made before they were.")
        return
    rows, marks = [], {}
    for index, (name, found) in enumerate(comparisons.items()):
        metric = metric_named(name)
        ours, theirs = found["candidate"], found["champion"]
        worst, best = (_worse(metric, found[f"{side}_bound"]) for side in ("worst", "best"))
        rows.append(
            [
                f"{metric.title} (judged)" if name == judged_by else metric.title,
                metric.text(ours),
                metric.text(theirs),
                _worse(metric, found["worse_by"]),
                f"{best} to {worst}",
                metric.text(found["smallest_shown"]),
            ]
        )
        if found["best_bound"] > 0:
            marks[index] = "warn"
    drawn.table(
        ["metric", "candidate", "champion", "worse by", f"bounds of {rule.confidence:.0%}", "smallest shown"],
        rows,
        marks,
    )
    drawn.note(
        "Positive differences are to the candidate's disadvantage, with one-sided bounds from paired resamples; rows "
        "in colour are worse even at the better bound. The smallest shown is the regression that these test rows can "
        "tell from none: an equal candidate keeps a tolerance of that size four times in five."
    )


def _worse(metric: Metric, value: float) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{metric.text(abs(value))}"


def best_of(metric: Metric, values: Sequence[float], cells: Sequence[Html | None]) -> list[Marked]:
    """Cells of one row, the best of them marked."""
    return [
        Marked(cell, "" if any(metric.is_better(other, value) for other in values) else "best")
        for value, cell in zip(values, cells, strict=True)
    ]
