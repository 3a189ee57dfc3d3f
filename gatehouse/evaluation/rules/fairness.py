"""Fairness: the largest difference between groups of a protected column."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from gatehouse.evaluation.gate import Evidence, Rule, family
from gatehouse.evaluation.group_measures import GROUP_MEASURES, Fairness, GroupMeasureName
from gatehouse.store.identity import Spec

Bound = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class FairnessBounds(Spec):
    """Bounds on fairness."""

    fairness: dict[str, dict[GroupMeasureName, Bound]] = Field(
        default_factory=dict,
        description="Limits by protected column: the largest difference or error between groups, the smallest ratio.",
    )


@family(FairnessBounds)
def fairness(policy: FairnessBounds, evidence: Evidence) -> Iterator[Rule]:
    """The interval of each measure keeps its bound, and every group can be judged."""
    for column, bounds in sorted(policy.fairness.items()):
        measured = evidence.fairness.get(column)
        for name, bound in sorted(bounds.items()):
            yield _rule(f"fairness {column} {name}", name, bound, measured)
        for group in measured.lacking if measured and bounds else ():
            expected = "a group that can be judged"
            yield Rule(f"fairness {group.name}", expected, group.lacking, False, inconclusive=True)


def _rule(rule: str, name: str, bound: float, measured: Fairness | None) -> Rule:
    measure = GROUP_MEASURES[name]
    expected = f"at {'least' if measure.is_ratio else 'most'} {bound:g}, with 95 % confidence"
    if measured is None:
        return Rule(rule, expected, "not measured: the evaluation knows no such protected column", False)
    judged = len(measured.groups) - len(measured.lacking)
    if judged < 2:
        value_text = f"not measured: {judged} of {len(measured.groups)} groups can be judged, and two are needed"
        return Rule(rule, expected, value_text, False, inconclusive=True)
    few = measured.without(measure.rates)
    partly = "".join(f"; {group.name} lacks {group.lacking}" for group in few)
    if name not in measured.measures["candidate"]:
        value_text = f"not measured: it has no value in these groups{partly}"
        return Rule(rule, expected, value_text, False, inconclusive=bool(few))
    value, low, high = measured.measures["candidate"][name]
    best, worst = (high, low) if measure.is_ratio else (low, high)
    value_text = f"{value:.4f} ({low:.4f} to {high:.4f}){partly}"
    holds = measure.keeps(worst, bound) and not few
    return Rule(rule, expected, value_text, holds, inconclusive=not holds and measure.keeps(best, bound))
