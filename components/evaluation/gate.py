"""The gate: a pure function from policy and evidence to a verdict with every rule that was applied."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gatehouse.components.artifacts.manifest import Manifest
from gatehouse.components.evaluation.spec import GatePolicy
from gatehouse.components.metrics.catalogue.found import metric_named

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


NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class DataCheck:
    """A check of the data that the candidate was made from: its name, its verdict, and its warnings.

    The verdict is `not checked` where the evaluation was given none: that is a warning.
    """

    name: str
    verdict: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Evidence:
    """What the rules look at.

    Attributes:
        model: The candidate's manifest: its files, what it was made from and how.
        candidate: Its test metrics.
        baseline: The same metrics of the baseline on the same rows and features.
        comparison: Against the champion, or None where there is none.
        slices: By metric, its value in every judged slice, by the slice's name.
        slices_asked: Whether the policy states limits on slices itself: then a slice must be judged. Limits that come
            from the task alone ask for none.
        data_checks: Of the data that the candidate was made from.
    """

    model: Manifest
    candidate: Metrics
    baseline: Metrics
    comparison: Comparison | None
    slices: Mapping[str, Metrics]
    slices_asked: bool
    data_checks: tuple[DataCheck, ...] = ()


def judge(policy: GatePolicy, evidence: Evidence) -> tuple[Rule, ...]:
    """Apply every rule; the candidate passes if all hold. A number that is NaN keeps no rule.

    Improving one metric and leaving the rest as it is never breaks a rule, except for the leakage alarm, which is there
    to distrust a metric that is too good.

    Args:
        policy: The promotion policy, resolved for the task.
        evidence: What was measured.
    """
    return tuple(rule for rules in RULES for rule in rules(policy, evidence))


def verdict_of(rules: tuple[Rule, ...]) -> str:
    """`pass` if every rule holds, else `refused`."""
    return "pass" if all(rule.holds for rule in rules) else "refused"


def _bars(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    for name, bar in sorted(policy.bars.items()):
        value = evidence.candidate[name]
        found = metric_named(name).text(value)
        if bar.min is not None:
            yield Rule(f"bar {name}", f"at least {bar.min:g}", found, value >= bar.min)
        if bar.max is not None:
            yield Rule(f"bar {name}", f"at most {bar.max:g}", found, value <= bar.max)


def _baseline(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    for name in policy.must_beat_baseline or ():
        metric, ours, theirs = metric_named(name), evidence.candidate[name], evidence.baseline[name]
        wanted = f"{'above' if metric.better == 'higher' else 'below'} the baseline's {metric.text(theirs)}"
        yield Rule(f"baseline {name}", wanted, metric.text(ours), metric.is_better(ours, theirs))


def _alarm(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    for name, limit in sorted((policy.leakage_alarm or {}).items()):
        metric, value = metric_named(name), evidence.candidate[name]
        expected = f"{metric.name} of at {'most' if metric.better == 'higher' else 'least'} {limit:g}"
        yield Rule("leakage alarm", expected, metric.text(value), metric.worse_by(value, limit) >= 0)


def _champion(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    rule, found = policy.champion, evidence.comparison
    if found is None:
        return
    metric = metric_named(found.metric)
    ours, theirs = metric.text(found.candidate), metric.text(found.champion)
    tolerated = rule.tolerated(found.champion)
    yield Rule(
        f"champion {found.metric}",
        f"not worse than the champion's {theirs} by more than {tolerated:.3g} with {rule.confidence:.0%} confidence",
        f"{ours}, at worst {_side(found.worst_bound)}",
        found.worst_bound <= tolerated,
    )
    if rule.min_improvement is not None:
        yield Rule(
            f"improvement {found.metric}",
            f"better than the champion's {theirs} by at least {rule.min_improvement:g}",
            f"{ours}, {_side(found.worse_by)}",
            -found.worse_by >= rule.min_improvement,
        )


def _side(worse_by: float) -> str:
    return f"{abs(worse_by):.5f} {'worse' if worse_by > 0 else 'better'}" if worse_by else "equal"


def _slices(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    for name, limit in sorted((policy.slices or {}).items()):
        metric, values = metric_named(name), evidence.slices.get(name, {})
        wanted = f"{metric.name} of at {'least' if metric.better == 'higher' else 'most'} {limit:g}"
        if not values and evidence.slices_asked:
            yield Rule(f"slices {name}", "at least one judged slice", "0", False)
        broken = {each: value for each, value in values.items() if not metric.keeps(value, limit)}
        for each, value in broken.items():
            yield Rule(f"slice {each}", wanted, metric.text(value), False)
        if values and not broken:
            worst = max(values, key=lambda each: (metric.worse_by(values[each], limit), each))
            yield Rule(
                "slices",
                f"{wanted} in each of {len(values)}",
                f"{metric.text(values[worst])} at worst, in {worst}",
                True,
            )


def _data(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    for check in evidence.data_checks:
        if check.verdict != NOT_CHECKED:
            yield Rule(check.name, "pass", check.verdict, check.verdict == "pass")
    if policy.warnings == "refuse" and evidence.data_checks:
        told = [f"{check.name}: {text}" for check in evidence.data_checks for text in check.warnings]
        yield Rule("warnings", "none on the data", "; ".join(told) or "none", not told)
    elif policy.warnings == "refuse":
        yield Rule("warnings", "none on the data", "not checked: the evaluation was given no checks of the data", False)


RULES: tuple[Callable[[GatePolicy, Evidence], Iterator[Rule]], ...] = (
    _bars,
    _baseline,
    _alarm,
    _champion,
    _slices,
    _data,
)
"""Every rule of the gate, in the order of the report. Verdict, reasons and report are made of what they give."""
