"""Fairness by each protected column: the measures of candidate and champion, and the rates of its groups."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.evaluation.group_measures import GROUP_MEASURES, Fairness, GroupMeasureName, Interval, fairness_from
from gatehouse.reports.elements import table
from gatehouse.reports.format import Html, escape
from gatehouse.reports.page import Report
from gatehouse.reports.row_charts import Dot, dot_chart

_DRAWN = ("true_positive_rate", "mean_error")


def add_fairness(
    drawn: Report, written: Sequence[Mapping[str, Any]], bounds: Mapping[str, Mapping[GroupMeasureName, float]]
) -> None:
    """The section of fairness.

    Args:
        drawn: The page.
        written: What `fairness.json` holds.
        bounds: Of the policy, by column and measure.
    """
    found = fairness_from(written)
    drawn.section(
        "Fairness",
        "How far the model's answers, at its threshold, differ between groups of a protected column: largest less "
        "smallest rate, or smallest by largest for a ratio, over the groups that can be judged. Below each number "
        "stands its 95 % interval.",
        f"{len(found):,}",
    )
    for each in found.values():
        if not each.groups:
            drawn.note(f"{each.column}: the task has no measure of fairness.")
            continue
        _add_measures(drawn, each, bounds.get(each.column, {}))
        _add_groups(drawn, each)


def _add_measures(drawn: Report, found: Fairness, bounds: Mapping[GroupMeasureName, float]) -> None:
    judged = len(found.groups) - len(found.lacking)
    if not any(found.measures.values()):
        drawn.note(f"{found.column}: not measured, as {judged} of {len(found.groups)} groups can be judged.")
        return
    rows, wanted = [], {str(name): bound for name, bound in bounds.items()}
    for name in (name for name in GROUP_MEASURES if name in found.measures["candidate"]):
        measure, bound = GROUP_MEASURES[name], wanted.get(name)
        sign = "≥" if measure.is_ratio else "≤"
        cells = [_estimate(told.get(name)) for told in found.measures.values()]
        rows.append([measure.title, *cells, "" if bound is None else f"{sign} {bound:g}"])
    drawn.table([f"by {found.column}, of {judged} groups", *found.measures, "bound"], rows)


def _add_groups(drawn: Report, found: Fairness) -> None:
    """The rates of each group, which several classes have none of."""
    names = list(dict.fromkeys(name for group in found.groups for name in group.rates["candidate"]))
    for name in names:
        if name in _DRAWN:
            dots = [
                Dot(
                    group.name,
                    *group.rates["candidate"][name],
                    mark="soft" if group in found.lacking or name in group.unknown else "",
                )
                for group in found.groups
                if name in group.rates["candidate"]
            ]
            drawn.figure(
                dot_chart(dots, _title(name)),
                f"{_title(name).capitalize()} of the candidate by {found.column}; pale groups cannot be judged.",
            )
    rows = [
        [group.name, group.rows, *(_estimate(group.rates["candidate"].get(name)) for name in names), group.lacking]
        for group in found.groups
    ]
    marks = {index: "soft" for index, group in enumerate(found.groups) if group in found.lacking}
    headers = ["group", "rows", *map(_title, names), "cannot be judged"]
    drawn.element(table(headers, rows, marks, {}, f"Groups of {found.column}"))


def _title(rate: str) -> str:
    return rate.replace("_", " ")


def _estimate(told: Interval | None) -> Html | None:
    if told is None:
        return None
    value, low, high = told
    return Html(f"{escape(f'{value:.4f}')}<small>{low:.4f} to {high:.4f}</small>")
