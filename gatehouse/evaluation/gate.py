"""The gate: evidence on a candidate, the rules that read it with the policy, and the verdict.

A rule is a function from policy and evidence to each `Rule` that it applied, also one that holds. It reads no clock and
no store, so the verdict is a pure function. Verdict, reasons, terminal, pages and ledger use these rules.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from statistics import NormalDist
from typing import Any, Literal

from gatehouse.data.splitting.spec import SEEN_BEFORE
from gatehouse.evaluation.group_measures import GROUP_MEASURES, Fairness
from gatehouse.evaluation.spec import (
    LEAST_TEST_GROUPS,
    LEAST_TEST_ROWS,
    NOT_CHECKED,
    ONLINE,
    GatePolicy,
    begins_with,
    own_rule_name,
    tolerated,
)
from gatehouse.metrics.arithmetic import holm
from gatehouse.metrics.catalogue import metric_named
from gatehouse.store.builder_code import BuilderError, named_object
from gatehouse.store.manifest import Manifest

_POWER = 0.8
_AS_GOOD = 0.02
"""A linear candidate is as good as the baseline within this share of its value: early stopping ends its fit at another
epoch with other validation rows."""
LEAST_UNITS = 20
UNSEEN, ENOUGH = "unseen rows", "test rows"
DATA_CHECKS = ("validation", "leakage", "split_checks")
Outcome = Literal["pass", "refused", "inconclusive"]
Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Rule:
    """One rule as it was applied.

    A rule that does not hold is `inconclusive` if the test rows can show neither that it is kept nor that it is broken.
    `severity`, `owner` and `reason` come from the policy.
    """

    name: str
    expected: str
    observed: str
    holds: bool
    inconclusive: bool = False
    severity: Literal["refuse", "approval", "warn"] = "refuse"
    owner: str = ""
    reason: str = ""

    @property
    def refuses(self) -> bool:
        """Whether it does not hold, and its severity refuses the candidate."""
        return not self.holds and self.severity == "refuse"

    @property
    def warns(self) -> bool:
        """Whether it does not hold, and is reported without refusing the candidate."""
        return not self.holds and self.severity != "refuse"

    @property
    def asks(self) -> bool:
        """Whether it does not hold, and a person decides about the candidate."""
        return not self.holds and self.severity == "approval"

    def __str__(self) -> str:
        asks = "a person decides" * self.asks
        terms = ": ".join(filter(None, [asks, self.owner and f"owner {self.owner}", self.reason]))
        return f"{self.name}: expected {self.expected}, found {self.observed}{terms and f' ({terms})'}"


@dataclass(frozen=True)
class Comparison:
    """Candidate against champion, or against its own predictions of other rows, on the same rows.

    `worse_by` and its two bounds are positive to the candidate's disadvantage, whatever the metric's direction. The
    bounds are each one-sided, at the confidence of the policy. `standard_error` is that of `worse_by`, from the draws.
    `units` is the number of rows, groups or days that were drawn from; None if unknown.
    """

    metric: str
    candidate: float
    champion: float
    worse_by: float
    worst_bound: float
    best_bound: float
    standard_error: float = 0.0
    units: int | None = None

    @property
    def too_few(self) -> bool:
        """Whether there are too few units for bounds: draws of one unit are all the same."""
        return self.units is not None and self.units < LEAST_UNITS

    @property
    def few_units(self) -> str:
        """A remark if there are too few units."""
        return f"; bounds of {self.units} units mean nothing, at least {LEAST_UNITS} are needed" * self.too_few

    def smallest_shown(self, confidence: float) -> float:
        """The smallest regression that these test rows can show, in the metric's own unit.

        An equal candidate keeps a tolerance of this size with a chance of 80 %: (z of confidence + z of 0.8) times the
        standard error of the difference (Julious 2004, section 4.1).
        """
        normal = NormalDist()
        return (normal.inv_cdf(confidence) + normal.inv_cdf(_POWER)) * self.standard_error


def figure(value: float) -> str:
    """The value of a metric as verdicts write it; verdicts are data, so it does not depend on how pages show it."""
    plain = value == 0 or 0.001 <= abs(value) < 10
    return format(value, ".4f" if plain else ".4g" if abs(value) < 1e10 else ".3e")


def side_of(worse_by: float) -> str:
    """By how much a model is worse or better, in words."""
    return f"{abs(worse_by):.5f} {'worse' if worse_by > 0 else 'better'}" if worse_by else "equal"


@dataclass(frozen=True)
class DataCheck:
    """A check of the candidate's data; its verdict is `not checked`, which is a warning, if it was not given."""

    name: str
    verdict: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Suite:
    """Result of the integration suite: `pass`, `fail`, or `not checked`.

    `online` is the result of the check of online features; empty if the suite has no such check.
    """

    verdict: str = NOT_CHECKED
    reasons: tuple[str, ...] = ("was not given",)
    warnings: tuple[str, ...] = ()
    online: str = ""


NOT_TRIED = Suite()


@dataclass(frozen=True)
class Cost:
    """The measured cost of a model: 95th percentile of the time to score a row, and peak memory if it was measured."""

    hardware: str
    latency_ms: float
    memory_mb: float | None
    measurement: str

    @classmethod
    def of(cls, record: Mapping[str, Any], measurement: str) -> "Cost":
        """From the record of a measurement, and its key."""
        latency = record["latency"]
        return cls(latency["hardware"], latency["single_row_ms"]["p95"], record.get("memory_mb"), measurement)


@dataclass(frozen=True)
class RowCounts:
    """Number of test rows, or of groups of a ranking; `rarer` counts the rows outside of the most frequent class."""

    units: int
    groups: bool = False
    rarer: int | None = None


@dataclass(frozen=True)
class FittedTestRows:
    """Test rows that a model was fitted on; they are removed before anything is measured.

    Attributes:
        left: Rows that no model was fitted on.
        lacking: Why the remaining rows cannot be used; then all rows are measured, and rules on rows are inconclusive.
        unread: Roles whose training rows are unknown, and why.
    """

    rows: Mapping[str, int]
    of: int
    left: int
    lacking: str = ""
    unread: tuple[str, ...] = ()
    transient: bool = False

    def __str__(self) -> str:
        if self.left == self.of:
            return f"none of the {self.of:,} test rows is among them"
        fitted = " and ".join(f"the {role} was fitted on {rows:,}" for role, rows in self.rows.items() if rows)
        rest = f"these were taken out, and {self.left:,} are left"
        if self.lacking:
            rest = f"the {self.left:,} others cannot be judged on ({self.lacking}), so all were measured on"
        return f"{fitted} of the {self.of:,} test rows; {rest}"


@dataclass(frozen=True)
class Origins:
    """Facts about the data that a candidate was made from.

    Attributes:
        lacking: Why the parts of its split are unknown, in words.
        age_days: From the newest decision that it learned from to that of the test part; None without decision times.
        psi: Population stability index from train to test, by feature; None with too few rows.
    """

    missing: tuple[str, ...] = ()
    lacking: str = ""
    age_days: float | None = None
    psi: Mapping[str, float | None] = field(default_factory=dict)
    transient: bool = False


@dataclass(frozen=True)
class Evidence:
    """The input of the rules.

    Attributes:
        slices_requested: Whether the policy itself states limits on slices; then at least one slice must be judged.
        floor: The comparison with the best champion so far, if that is not the champion.
        constant: Metrics of a model that uses no feature.
    """

    model: Manifest
    candidate: Metrics
    baseline: Metrics
    comparison: Comparison | None
    slices: Mapping[str, Metrics]
    slices_requested: bool
    data_checks: tuple[DataCheck, ...] = ()
    cost: Cost | None = None
    guessing: Comparison | None = None
    comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    slice_comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    seen: FittedTestRows | None = None
    fairness: Mapping[str, Fairness] = field(default_factory=dict)
    origins: Origins | None = None
    integration: Suite = NOT_TRIED
    counted: RowCounts | None = None
    floor: Comparison | None = None
    constant: Metrics = field(default_factory=dict)

    @property
    def equals_champion(self) -> bool:
        """Whether candidate and champion have the same value of every metric, on all rows and on each draw."""
        bounds = [(entry.worse_by, entry.best_bound, entry.worst_bound) for entry in self.comparisons.values()]
        return bool(bounds) and not any(any(numbers) for numbers in bounds)

    @property
    def without_features(self) -> "Evidence":
        """The same of a model that uses no feature, as far as numbers of all rows say."""
        constant = self.constant

        def point(comparison: Comparison, other: float) -> Comparison:
            value = constant.get(comparison.metric, math.nan)
            worse = metric_named(comparison.metric).worse_by(value, other)
            return Comparison(comparison.metric, value, other, worse, worst_bound=worse, best_bound=worse)

        guess = self.guessing
        return replace(
            self,
            candidate=constant,
            comparison=self.comparison and point(self.comparison, self.comparison.champion),
            floor=self.floor and point(self.floor, self.floor.champion),
            comparisons={name: point(entry, entry.champion) for name, entry in self.comparisons.items()},
            guessing=guess and point(guess, constant.get(guess.metric, math.nan)),
            slice_comparisons={},
        )


def _bars(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """The candidate's value of each metric keeps its bounds."""
    for name, bar in sorted(policy.bars.items()):
        value = evidence.candidate.get(name, math.nan)
        if bar.min is not None:
            yield Rule(f"bar {name}", f"at least {bar.min:g}", figure(value), value >= bar.min)
        if bar.max is not None:
            yield Rule(f"bar {name}", f"at most {bar.max:g}", figure(value), value <= bar.max)


def _baseline(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """The candidate is strictly better than the baseline in each metric; a linear candidate is as good."""
    linear = evidence.model.configuration.get("model", {}).get("architecture") == "linear"
    for name in policy.must_beat_baseline or ():
        metric = metric_named(name)
        candidate, base = (values.get(name, math.nan) for values in (evidence.candidate, evidence.baseline))
        better = metric.is_better(candidate, base)
        expected = f"{'above' if metric.better == 'higher' else 'below'} the baseline's {figure(base)}"
        if linear:
            better = better or abs(candidate - base) <= _AS_GOOD * abs(base)
            expected += f", or within {_AS_GOOD:.0%} of it, as the candidate is linear too"
        yield Rule(f"baseline {name}", expected, figure(candidate), better)


def _guessing(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """The candidate is better than its own predictions of other rows, also at its worst bound."""
    comparison, confidence = evidence.guessing, policy.better_than_guessing
    if comparison is None or confidence is None:
        return
    yield Rule(
        f"guessing {comparison.metric}",
        f"better than the {figure(comparison.champion)} of its own predictions of other rows, with {confidence:.0%} "
        "confidence",
        f"{figure(comparison.candidate)}, at worst {side_of(comparison.worst_bound)}{comparison.few_units}",
        comparison.worst_bound < 0 and not comparison.too_few,
        inconclusive=comparison.best_bound < 0 <= comparison.worst_bound or comparison.too_few,
    )


def _leakage_alarm(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """No metric of the candidate is too good to be true."""
    # Warnings of the split which say that a model may know rows of test.
    warned = [text for check in evidence.data_checks if check.name == "split checks" for text in check.warnings]
    seen_before = [text for text in warned if text.startswith(tuple(f"{name}:" for name in SEEN_BEFORE))]
    for name, limit in sorted((policy.leakage_alarm or {}).items()):
        metric, value = metric_named(name), evidence.candidate.get(name, math.nan)
        expected = f"{metric.name} of at {'most' if metric.better == 'higher' else 'least'} {limit:g}"
        holds = metric.worse_by(value, limit) >= 0
        reasons = [figure(value), *([] if holds else seen_before)]
        yield Rule(f"leakage alarm {name}", expected, "; ".join(reasons), holds)


def _champion(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """The candidate is not inferior to the champion, and to the best champion so far, and not equal to the champion."""
    rule, confidence = policy.champion, f"{policy.champion.confidence:.0%} confidence"
    for name, comparison in (("champion", evidence.comparison), ("floor", evidence.floor)):
        if comparison is None:
            continue
        limit, smallest = tolerated(rule.tolerance, comparison.champion), comparison.smallest_shown(rule.confidence)
        blind = comparison.best_bound <= limit < comparison.worst_bound and limit < smallest
        remark = f"; the smallest regression that these test rows can show is {smallest:.3g}" if blind else ""
        remark = comparison.few_units or remark
        other = f"the {'champion' if name == 'champion' else 'best champion so far'}'s {figure(comparison.champion)}"
        bound = f"not worse than {other} by more than {limit:.3g}"
        if limit < 0:
            bound = f"better than {other} by at least {-limit:.3g}"
        value, holds = f"at worst {side_of(comparison.worst_bound)}{remark}", comparison.worst_bound <= limit
        if equal := name == "champion" and evidence.equals_champion:
            value = "equal in every metric on every draw, so there is nothing to replace"
        yield Rule(
            f"{name} {comparison.metric}",
            f"{bound} with {confidence}",
            f"{figure(comparison.candidate)}, {value}",
            holds and not comparison.too_few and not equal,
            inconclusive=not equal and (blind or comparison.too_few),
        )


def _slices(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """Every judged slice keeps the limit of each metric."""
    for name, limit in sorted((policy.slices or {}).items()):
        metric, values = metric_named(name), evidence.slices.get(name, {})
        expected = f"{metric.name} of at {'least' if metric.better == 'higher' else 'most'} {limit:g}"
        if not values and evidence.slices_requested:
            yield Rule(f"slices {name}", "at least one judged slice", "0", False)
        broken = {slice_name: value for slice_name, value in values.items() if not metric.keeps(value, limit)}
        for slice_name, value in broken.items():
            yield Rule(f"slice {slice_name}", expected, figure(value), False)
        if values and not broken:
            worst = max(values, key=lambda slice_name: (metric.worse_by(values[slice_name], limit), slice_name))
            yield Rule(
                "slices",
                f"{expected} in each of {len(values)}",
                f"{figure(values[worst])} at worst, in {worst}",
                True,
            )


def _regressions(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """No regression beyond the tolerance is significant after Holm's correction."""
    rule = policy.regressions
    if rule is None or evidence.comparison is None:
        return
    comparisons = {name: evidence.comparisons[name] for name in rule.metrics}
    if rule.slices:
        comparisons |= {f"in {name}": comparison for name, comparison in evidence.slice_comparisons.items()}
    tested = {name: comparison for name, comparison in comparisons.items() if not comparison.too_few}
    p_values = []
    for comparison in tested.values():
        beyond = comparison.worse_by - tolerated(rule.tolerance, comparison.champion)
        if comparison.standard_error > 0:  # The normal approximation of the bootstrap.
            p_values.append(1 - NormalDist().cdf(beyond / comparison.standard_error))
        else:
            p_values.append(1.0 if beyond <= 0 else 0.0)
    adjusted = holm(p_values)
    limit = f"{rule.tolerance} of its value" if isinstance(rule.tolerance, str) else f"{rule.tolerance:.3g}"
    expected = f"not shown to be worse than the champion by more than {limit}"
    shown = {
        name: comparison
        for (name, comparison), p_value in zip(tested.items(), adjusted, strict=True)
        if not p_value > 1 - rule.confidence
    }
    for name, comparison in shown.items():
        worse = f"{comparison.worse_by:.5f} worse, with {rule.confidence:.0%} confidence in all {len(tested)}"
        yield Rule(f"regression {name}", expected, worse, False)
    few = f"; {len(comparisons) - len(tested)} of too few units" if len(comparisons) > len(tested) else ""
    if not tested:
        yield Rule("regressions", expected, f"not checked: no metric and no judged slice{few}", False)
    elif not shown:
        yield Rule("regressions", f"{expected}, in {len(tested)} metrics and slices", f"none{few}", True)


def _fairness(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """The interval of each measure keeps its bound, and every group can be judged."""
    for column, bounds in sorted(policy.fairness.items()):
        measured = evidence.fairness.get(column)
        for name, bound in sorted(bounds.items()):
            yield _fairness_rule(f"fairness {column} {name}", name, bound, measured)
        for group in measured.lacking if measured and bounds else ():
            expected = "a group that can be judged"
            yield Rule(f"fairness {group.name}", expected, group.lacking, False, inconclusive=True)


def _fairness_rule(rule: str, name: str, bound: float, measured: Fairness | None) -> Rule:
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


def _data_checks(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """The checks of the data passed, without warnings if the policy asks for that."""
    for check in evidence.data_checks:
        if check.verdict != NOT_CHECKED:
            count = len(check.warnings)
            warned = f" with {count} warning{'s' * (count > 1)}" if count else ""
            yield Rule(check.name, "pass", check.verdict + warned, check.verdict == "pass")
    if policy.warnings == "refuse" and evidence.data_checks:
        warnings = [f"{check.name}: {text}" for check in evidence.data_checks for text in check.warnings]
        yield Rule("warnings", "none on the data", "; ".join(warnings) or "none", not warnings)
    elif policy.warnings == "refuse":
        yield Rule("warnings", "none on the data", "not checked: the evaluation was given no checks of the data", False)


def _unseen(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """The lineage of both models can be read, and enough rows are left."""
    if (seen := evidence.seen) is None:
        return
    expected = "that each model tells which rows it was fitted on"
    if seen.unread:
        yield Rule(UNSEEN, expected, "; ".join(seen.unread), False)
        return
    if any(seen.rows.values()):
        expected = "test rows that no model was fitted on"
    yield Rule(UNSEEN, expected, str(seen), not seen.lacking, inconclusive=bool(seen.lacking))


def _enough_rows(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """Enough rows were measured and, for classes, enough of them outside of the most frequent class."""
    if (counted := evidence.counted) is None:
        return
    least = policy.least_test_rows or (LEAST_TEST_GROUPS if counted.groups else LEAST_TEST_ROWS)
    needed = [(least, counted.units, "groups of test rows" if counted.groups else "test rows")]
    if counted.rarer is not None:
        needed.append((policy.least_rarer_rows, counted.rarer, "rows outside of the most frequent class"))
    enough = all(rows >= least for least, rows, _ in needed)
    expected = " and ".join(f"{least:,} {of}" for least, _, of in needed)
    counts = " and ".join(f"{rows:,}" for _, rows, _ in needed)
    yield Rule(ENOUGH, f"at least {expected}", counts, enough, inconclusive=not enough)


def _drift(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """No feature moved further than the limit; a feature of too few rows keeps no limit."""
    if (most := policy.max_psi) is None:
        return
    origins, expected = evidence.origins, f"a PSI of at most {most:g} from train to test"
    if origins is None or not origins.psi:
        why = (origins and origins.lacking) or "no feature was measured"
        yield Rule("drift", expected, f"not measured: {why}", False)
        return
    for name, value in sorted(origins.psi.items()):
        if value is None:
            yield Rule(f"drift {name}", expected, "not measured: too few rows", False, inconclusive=True)
        elif not value <= most:
            yield Rule(f"drift {name}", expected, f"{value:.4f}", False)
    measured = {name: value for name, value in origins.psi.items() if value is not None}
    if len(measured) == len(origins.psi) and all(value <= most for value in measured.values()):
        worst = max(measured, key=lambda name: (measured[name], name))
        yield Rule(
            "drift", f"{expected}, of {len(measured)} features", f"{measured[worst]:.4f} at most, of {worst}", True
        )


def _training_age(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """The newest row that the candidate was trained on is not too old."""
    if (most := policy.max_training_age) is None:
        return
    days = evidence.origins.age_days if evidence.origins else None
    lacking = evidence.origins.lacking or "the rows have no decision times" if evidence.origins else "nobody told"
    age = f"{days:.2f} days" if days is not None else f"not measured: {lacking}"
    expected = f"at most {most / timedelta(days=1):g} days before the newest test row"
    yield Rule("training age", expected, age, days is not None and days <= most / timedelta(days=1))


def _lineage(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """Nothing is missing in the lineage of the candidate."""
    if policy.complete_lineage:
        missing = evidence.origins.missing if evidence.origins else ("not checked",)
        expected = "snapshot, configuration, feature tables, training set and split in the store"
        yield Rule("lineage", expected, "; ".join(missing) or "all of them", not missing)


def _cost(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """The model keeps every bound; a number that was not measured keeps none."""
    bounds, measured = policy.cost, evidence.cost
    where = f" on {measured.hardware}" if measured else ""
    if (most := bounds.latency_ms) is not None:
        value = measured.latency_ms if measured else None
        yield _cost_rule("latency", most, value, "ms for 95 of 100 single rows", f"ms{where}")
    if (most := bounds.size_mb) is not None:
        size = sum(file.bytes for file in evidence.model.files) / 1e6
        yield _cost_rule("model size", most, size if evidence.model.files else None, "MB", "MB")
    if (most := bounds.memory_mb) is not None:
        value = measured.memory_mb if measured else None
        yield _cost_rule("memory", most, value, "MB", f"MB{where}")


def _cost_rule(name: str, most: float, value: float | None, expected: str, unit: str) -> Rule:
    text = "not measured" if value is None else f"{value:.4g} {unit}"
    return Rule(name, f"at most {most:g} {expected}", text, value is not None and value <= most)


def _integration(policy: GatePolicy, evidence: Evidence) -> Iterator[Rule]:
    """Every check of the integration suite passed."""
    suite = evidence.integration
    if suite.verdict != NOT_CHECKED or policy.require_integration:
        reasons = "; ".join(suite.reasons) or suite.verdict
        yield Rule("integration", "that the candidate passes its suite", reasons, suite.verdict == "pass")
    if policy.require_online:
        unchecked = "; ".join(warning for warning in suite.warnings if warning.startswith(ONLINE))
        compared = suite.online in ("pass", "fail") and not unchecked
        why = unchecked or (
            "the candidate was not tried" if suite.verdict == NOT_CHECKED else "a suite without this check"
        )
        yield Rule(
            "integration online", "that online features were compared", "they were" if compared else why, compared
        )


_ON_ROWS = (_bars, _baseline, _guessing, _leakage_alarm, _champion, _slices, _regressions, _fairness)
"""The rules that depend on measurements on the test rows."""
_ON_SKILL = (_bars, _baseline, _guessing, _champion, _regressions)
"""Those by which a model must show that it predicts; slices and fairness are not measured of a constant."""
_ON_FACTS = (_data_checks, _cost, _drift, _enough_rows, _integration, _lineage, _training_age, _unseen)


def applied_rules(policy: GatePolicy, evidence: Evidence) -> tuple[Rule, ...]:
    """Apply every rule of the policy, which is resolved for the task. NaN breaks every rule that reads it.

    Improving one metric alone never breaks a rule of Gatehouse's, except for the leakage alarm, which distrusts metrics
    that are too good. If too few test rows are left, a rule on them is not broken but inconclusive.

    Raises BuilderError if a rule of the project's own fails, or names what it yields by other words than its own.
    """
    on_rows = [rule for rules in _ON_ROWS for rule in rules(policy, evidence)]
    on_rows += [rule for name, settings in policy.own_rules.items() for rule in _own(name, settings, evidence)]
    on_facts = [rule for rules in _ON_FACTS for rule in rules(policy, evidence)]
    on_rows, on_facts = (
        [replace(rule, **dict(policy.terms_of(rule.name))) for rule in rules] for rules in (on_rows, on_facts)
    )
    if any(rule.name in (UNSEEN, ENOUGH) and rule.refuses and rule.inconclusive for rule in on_facts):
        on_rows = [replace(rule, inconclusive=not rule.holds) for rule in on_rows]
    return (*on_rows, *on_facts)


def skill_rules(policy: GatePolicy, evidence: Evidence) -> list[Rule]:
    """The rules by which a model must show that it predicts, applied to one that uses no feature.

    Slices and fairness are not measured of such a model, and rules of a project's own may refuse anything.
    """
    rules = (rule for applied in _ON_SKILL for rule in applied(policy, evidence.without_features))
    return [replace(rule, **dict(policy.terms_of(rule.name))) for rule in rules]


def kept_without_features(policy: GatePolicy, evidence: Evidence) -> Iterator[str]:
    """Warnings about a resolved policy that would let a model pass that uses no feature, or a rule that would."""
    rules = skill_rules(policy, evidence)
    if not policy.own_rules and not any(rule.refuses for rule in rules):
        yield "policy: a model that uses no feature would pass too, as no rule on what is measured refuses it"
    for rule in rules:
        if rule.name.startswith("champion ") and rule.holds:
            yield f"{rule.name}: a model that uses no feature would pass this rule too, at {rule.observed}"


def _own(name: str, settings: Mapping[str, Any], evidence: Evidence) -> Iterator[Rule]:
    """The rules that a function of the project's own applies."""
    try:
        rules = [*named_object(name)(evidence, **settings)]
    except Exception as error:  # Code of the project fails as it likes.
        raise BuilderError(f"own_rules: {name} failed: {type(error).__name__}: {error}") from error
    words = own_rule_name(name)
    for rule in rules:
        if not isinstance(rule, Rule) or not begins_with(rule.name, words):
            raise BuilderError(
                f"own_rules: {name}: expected each Rule to have a name that begins with {words!r}, found {rule!r}."
            )
        yield rule


def verdict_of(rules: tuple[Rule, ...]) -> Outcome:
    """`refused` if a rule that refuses is broken, `inconclusive` if one is inconclusive, else `pass`."""
    refusing = [rule for rule in rules if rule.refuses]
    return "refused" if any(not rule.inconclusive for rule in refusing) else "inconclusive" if refusing else "pass"
