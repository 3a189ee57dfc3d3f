"""The champion: the candidate is not worse on the same test rows."""

from collections.abc import Iterator

from pydantic import Field, model_validator

from gatehouse.evaluation.gate import Evidence, Rule, family, figure, side_of
from gatehouse.metrics.catalogue import MetricName
from gatehouse.store.identity import Spec


class ChampionRule(Spec):
    """How the candidate must compare with the champion on the same test rows.

    Two conditions, both in the direction in which the metric is better. The candidate must not be inferior: the bound
    of the paired bootstrap interval that is worst for it is not worse than the champion by more than is tolerated. And
    it must be better by `min_improvement` on the test rows themselves; with 0 an equal model passes.
    """

    metric: MetricName | None = Field(None, description="The metric that is compared; null for the task's objective.")
    tolerance: float | None = Field(
        None,
        ge=0.0,
        allow_inf_nan=False,
        description="How much worse than the champion the candidate may be, in the metric's unit; null if "
        "`relative_tolerance` is used.",
    )
    relative_tolerance: float = Field(
        0.005, ge=0.0, allow_inf_nan=False, description="The same as a share of the champion's value."
    )
    confidence: float = Field(0.95, gt=0.5, lt=1.0, description="Confidence level of the one-sided bound.")
    min_improvement: float | None = Field(
        None,
        ge=0.0,
        allow_inf_nan=False,
        description="Smallest improvement that is required; null if the candidate only must not be inferior.",
    )

    @model_validator(mode="after")
    def _one_tolerance(self) -> "ChampionRule":
        usual = type(self).model_fields["relative_tolerance"].default
        if self.tolerance is not None and self.relative_tolerance != usual:
            raise ValueError("expected tolerance or relative_tolerance, found both")
        return self

    def tolerated(self, champion: float) -> float:
        """By how much a candidate may be worse than a champion of this value, in the metric's own unit."""
        return self.relative_tolerance * abs(champion) if self.tolerance is None else self.tolerance


class Champion(Spec):
    """The comparison with the champion."""

    champion: ChampionRule = Field(ChampionRule(), description="How the candidate must compare with the champion.")


@family(Champion, "champion", "improvement")
def champion(policy: Champion, evidence: Evidence) -> Iterator[Rule]:
    """The candidate is not inferior to the champion, and better if the policy asks for that."""
    rule, comparison = policy.champion, evidence.comparison
    if comparison is None:
        return
    candidate_score, champion_score = figure(comparison.candidate), figure(comparison.champion)
    tolerated, confidence = rule.tolerated(comparison.champion), f"{rule.confidence:.0%} confidence"
    smallest = comparison.smallest_shown(rule.confidence)
    blind = comparison.best_bound <= tolerated < comparison.worst_bound and tolerated < smallest
    remark = f"; the smallest regression that these test rows can show is {smallest:.3g}" if blind else ""
    remark = comparison.few_units or remark
    yield Rule(
        f"champion {comparison.metric}",
        f"not worse than the champion's {champion_score} by more than {tolerated:.3g} with {confidence}",
        f"{candidate_score}, at worst {side_of(comparison.worst_bound)}{remark}",
        comparison.worst_bound <= tolerated and not comparison.too_few,
        inconclusive=blind or comparison.too_few,
    )
    if rule.min_improvement is not None:
        yield Rule(
            f"improvement {comparison.metric}",
            f"better than the champion's {champion_score} by at least {rule.min_improvement:g}",
            f"{candidate_score}, {side_of(comparison.worse_by)}",
            -comparison.worse_by >= rule.min_improvement,
        )
