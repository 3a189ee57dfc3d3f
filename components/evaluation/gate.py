"""The gate: a pure function from metrics and policy to a verdict with every rule that was applied."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gatehouse.components.evaluation.spec import LOWER_IS_BETTER, ChampionRule, GatePolicy

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
    """Candidate against champion on the same rows.

    `worse_by` and its two bounds are positive to the candidate's disadvantage, whatever the metric's direction. The
    bounds are each one-sided, at the confidence of the policy.
    """

    metric: str
    candidate: float
    champion: float
    worse_by: float
    worst_bound: float
    best_bound: float


def judge(
    policy: GatePolicy,
    candidate: Metrics,
    baseline: Metrics,
    comparison: Comparison | None,
    slices: Mapping[str, float],
) -> tuple[Rule, ...]:
    """Apply every rule of `policy`; the candidate passes if all hold. A number that is NaN keeps no rule.

    Improving one metric and leaving the rest as it is never breaks a rule, except for the leakage alarm, which is there
    to distrust a ROC AUC that is too good.

    Args:
        policy: The promotion policy.
        candidate: Its test metrics.
        baseline: The same metrics of logistic regression on the same rows and features.
        comparison: Against the champion, or None where there is none.
        slices: ROC AUC of every slice that is large enough, by name.
    """
    rules = [*_bars(policy, candidate), *_baseline(policy, candidate, baseline), _alarm(policy, candidate)]
    if comparison is not None:
        rules.extend(_champion(policy.champion, comparison))
    return (*rules, *_slices(policy, slices))


def verdict_of(rules: tuple[Rule, ...]) -> str:
    """`pass` if every rule holds, else `refused`."""
    return "pass" if all(rule.holds for rule in rules) else "refused"


def _bars(policy: GatePolicy, candidate: Metrics) -> Iterator[Rule]:
    for metric, bar in policy.bars.items():
        value = candidate[metric]
        if bar.min is not None:
            yield Rule(f"bar {metric}", f"at least {bar.min:g}", f"{value:.4f}", value >= bar.min)
        if bar.max is not None:
            yield Rule(f"bar {metric}", f"at most {bar.max:g}", f"{value:.4f}", value <= bar.max)


def _baseline(policy: GatePolicy, candidate: Metrics, baseline: Metrics) -> Iterator[Rule]:
    for metric in policy.must_beat_baseline:
        ours, theirs = candidate[metric], baseline[metric]
        lower = metric in LOWER_IS_BETTER
        wanted = f"{'below' if lower else 'above'} logistic regression's {theirs:.4f}"
        yield Rule(f"baseline {metric}", wanted, f"{ours:.4f}", ours < theirs if lower else ours > theirs)


def _alarm(policy: GatePolicy, candidate: Metrics) -> Rule:
    score, alarm = candidate["roc_auc"], policy.leakage_alarm
    return Rule("leakage alarm", f"ROC AUC of at most {alarm:g}", f"{score:.4f}", score <= alarm)


def _champion(rule: ChampionRule, comparison: Comparison) -> Iterator[Rule]:
    yield Rule(
        f"champion {comparison.metric}",
        f"not worse than the champion's {comparison.champion:.4f} by more than {rule.tolerance:g} "
        f"with {rule.confidence:.0%} confidence",
        f"{comparison.candidate:.4f}, at worst {_side(comparison.worst_bound)}",
        comparison.worst_bound <= rule.tolerance,
    )
    if rule.min_improvement is not None:
        yield Rule(
            f"improvement {comparison.metric}",
            f"better than the champion's {comparison.champion:.4f} by at least {rule.min_improvement:g}",
            f"{comparison.candidate:.4f}, {_side(comparison.worse_by)}",
            -comparison.worse_by >= rule.min_improvement,
        )


def _side(worse_by: float) -> str:
    return f"{abs(worse_by):.5f} {'worse' if worse_by > 0 else 'better'}" if worse_by else "equal"


def _slices(policy: GatePolicy, slices: Mapping[str, float]) -> Iterator[Rule]:
    floor = policy.slice_min_roc_auc
    broken = {name: value for name, value in slices.items() if not value >= floor}
    for name, value in broken.items():
        yield Rule(f"slice {name}", f"ROC AUC of at least {floor:g}", f"{value:.4f}", False)
    if slices and not broken:
        worst = min(slices, key=lambda name: (slices[name], name))
        expected = f"ROC AUC of at least {floor:g} in each of {len(slices)}"
        yield Rule("slices", expected, f"{slices[worst]:.4f} at worst, in {worst}", True)
