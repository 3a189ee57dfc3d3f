"""The gate: a pure function from metrics and policy to a verdict with every rule that was applied."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gatehouse.components.evaluation.spec import LOWER_IS_BETTER, GatePolicy

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Rule:
    """One rule as it was applied: what was expected, what was found, and whether it holds."""

    name: str
    expected: str
    found: str
    holds: bool

    def __str__(self) -> str:
        return f"{self.name}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True)
class Comparison:
    """Candidate against champion on the same rows: how much worse the candidate is, with the interval's worst bound.

    Positive numbers are to the candidate's disadvantage, whatever the metric's direction.
    """

    metric: str
    candidate: float
    champion: float
    worse_by: float
    worst_bound: float


def judge(
    policy: GatePolicy,
    candidate: Metrics,
    baseline: Metrics,
    comparison: Comparison | None,
    slices: Mapping[str, float],
) -> tuple[Rule, ...]:
    """Apply every rule of `policy`; the candidate passes if all hold. A metric that is NaN keeps no rule.

    Args:
        policy: The promotion policy.
        candidate: Its test metrics.
        baseline: The same metrics of logistic regression on the same rows and features.
        comparison: Against the champion, or None where there is none.
        slices: ROC AUC of every slice that is large enough, by name.
    """
    return tuple(_rules(policy, candidate, baseline, comparison, slices))


def _rules(
    policy: GatePolicy,
    candidate: Metrics,
    baseline: Metrics,
    comparison: Comparison | None,
    slices: Mapping[str, float],
) -> Iterator[Rule]:
    for metric, bar in policy.bars.items():
        value = candidate[metric]
        if bar.min is not None:
            yield Rule(f"bar {metric}", f"at least {bar.min:g}", f"{value:.4f}", value >= bar.min)
        if bar.max is not None:
            yield Rule(f"bar {metric}", f"at most {bar.max:g}", f"{value:.4f}", value <= bar.max)
    for metric in policy.must_beat_baseline:
        better = _worse_by(metric, candidate[metric], baseline[metric]) < 0
        wanted = "below" if metric in LOWER_IS_BETTER else "above"
        yield Rule(
            f"baseline {metric}", f"{wanted} logistic regression's {baseline[metric]:.4f}", f"{candidate[metric]:.4f}", better
        )
    alarm = policy.leakage_alarm
    score = candidate["roc_auc"]
    yield Rule("leakage alarm", f"ROC AUC of at most {alarm:g}", f"{score:.4f}", score <= alarm)
    if comparison is not None:
        rule = policy.champion
        yield Rule(
            f"champion {comparison.metric}",
            f"not worse than the champion's {comparison.champion:.4f} by more than {rule.tolerance:g} "
            f"({rule.confidence:.0%} confidence)",
            f"{comparison.candidate:.4f}, worse by up to {comparison.worst_bound:+.4f}",
            comparison.worst_bound <= rule.tolerance,
        )
    for name, value in slices.items():
        if not value >= policy.slice_min_roc_auc:
            yield Rule(f"slice {name}", f"ROC AUC of at least {policy.slice_min_roc_auc:g}", f"{value:.4f}", False)


def _worse_by(metric: str, candidate: float, other: float) -> float:
    return candidate - other if metric in LOWER_IS_BETTER else other - candidate
