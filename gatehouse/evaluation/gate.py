"""The gate: a pure function from policy and evidence to a verdict, with every rule that was applied."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

from pydantic import Field, field_validator

from gatehouse.evaluation.group_measures import Fairness
from gatehouse.evaluation.integration.spec import NOT_CHECKED
from gatehouse.store.identity import Spec
from gatehouse.store.manifest import Manifest

# The last part stands for every module of the folder, also to what takes the digest of code.
_ROOM = "gatehouse.evaluation.rules.*"
_POWER = 0.8
LEAST_UNITS = 20
_FIRST = ("bars", "baseline", "guessing", "leakage_alarm", "champion", "slices", "data_checks")
Outcome = Literal["pass", "refused", "inconclusive"]
Metrics = Mapping[str, float]
Severity = Literal["refuse", "warn"]


class Terms(Spec):
    """The severity of a rule, its owner, and its reason."""

    severity: Severity = Field(
        "refuse", description="Whether a broken rule refuses the candidate, or is only reported."
    )
    owner: str = Field("", description="Owner of the rule: whom to ask about it.")
    reason: str = Field("", description="Why the rule exists.")


class RuleSettings(Spec):
    """The part of the policy that configures single rules."""

    rules: dict[str, Terms] = Field(
        default_factory=dict,
        description="Severity, owner and reason of rules, by the name that verdicts show, or by its first words: "
        "`slice` for all slices, `slice carrier=OO` for one. If several names match a rule, the longest one applies.",
    )

    @field_validator("rules")
    @classmethod
    def _exist(cls, rules: dict[str, Terms]) -> dict[str, Terms]:
        if unknown := [name for name in rules if not _head(name)]:
            heads = ", ".join(head for family in families() for head in family.names)
            raise ValueError(f"expected names of rules, which begin with {heads}, found {unknown[0]!r}")
        return rules

    def terms_of(self, rule: str) -> Terms:
        """The terms of the rule of this name: those under the longest name that matches it."""
        return self.rules[max(names, key=len)] if (names := self._matching(rule)) else Terms()

    def unused(self, applied: "tuple[Rule, ...]") -> tuple[str, ...]:
        """Names under `rules` that match none of the rules that were applied."""
        used = {name for rule in applied for name in self._matching(rule.name)}
        return tuple(sorted({*self.rules} - used))

    def _matching(self, rule: str) -> list[str]:
        return [name for name in self.rules if _matches(name, rule) and len(name) >= len(_head(rule))]


def _matches(name: str, rule: str) -> bool:
    return rule == name or rule.startswith(f"{name} ")


def _head(rule: str) -> str:
    """The longest name of a family that the rule's name begins with: `leakage` does not match the leakage alarm."""
    heads = (head for family in families() for head in family.names if _matches(head, rule))
    return max(heads, key=len, default="")


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
    severity: Severity = "refuse"
    owner: str = ""
    reason: str = ""

    @property
    def refuses(self) -> bool:
        """Whether it does not hold, and its severity refuses the candidate."""
        return not self.holds and self.severity == "refuse"

    @property
    def warns(self) -> bool:
        """Whether it does not hold, and is only reported."""
        return not self.holds and self.severity == "warn"

    def __str__(self) -> str:
        terms = ": ".join(filter(None, [self.owner and f"owner {self.owner}", self.reason]))
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


DATA_CHECKS = ("validation", "leakage", "split_checks")


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


UNSEEN, ENOUGH = "unseen rows", "test rows"


@dataclass(frozen=True)
class TestSize:
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
    """What is known of the data that a candidate was made from.

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
    counted: TestSize | None = None


@dataclass(frozen=True)
class Family:
    """The rules in one file of the folder `rules`.

    Attributes:
        of_rows: Whether they depend on measurements on the test rows.
    """

    policy: type[Spec]
    rules: Callable[[Any, Evidence], Iterator[Rule]]
    names: tuple[str, ...]
    of_rows: bool = True


def family(
    policy: type[Spec], *names: str, of_rows: bool = True
) -> Callable[[Callable[[Any, Evidence], Iterator[Rule]]], Family]:
    """Declare a function as the `Family` of its file, whose name it must have; `names` are that name by default."""
    return lambda rules: Family(policy, rules, names or (rules.__name__.replace("_", " "),), of_rows)


@cache
def families() -> tuple[Family, ...]:
    """All families, in the order of the report."""
    names = [path.stem for path in (Path(__file__).parent / "rules").glob("[a-z]*.py")]
    names.sort(key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    return tuple(getattr(importlib.import_module(_ROOM.replace("*", name)), name) for name in names)


def judge(policy: RuleSettings, evidence: Evidence) -> tuple[Rule, ...]:
    """Apply every rule of the policy, which is resolved for the task. NaN breaks every rule that reads it.

    Improving one metric alone never breaks a rule, except for the leakage alarm, which distrusts metrics that are too
    good. If too few test rows are left, a rule on them is not broken but inconclusive.
    """
    applied = [(family.of_rows, rule) for family in families() for rule in family.rules(policy, evidence)]
    rules = [(of_rows, replace(rule, **dict(policy.terms_of(rule.name)))) for of_rows, rule in applied]
    if any(rule.name in (UNSEEN, ENOUGH) and rule.refuses and rule.inconclusive for _, rule in rules):
        return tuple(replace(rule, inconclusive=not rule.holds) if of_rows else rule for of_rows, rule in rules)
    return tuple(rule for _, rule in rules)


NONE_REFUSES = "every rule of the policy has severity: warn, so every candidate passes"


def verdict_of(rules: tuple[Rule, ...]) -> Outcome:
    """`refused` if a rule that refuses is broken, `inconclusive` if one is inconclusive, else `pass`."""
    refusing = [rule for rule in rules if rule.refuses]
    return "refused" if any(not rule.inconclusive for rule in refusing) else "inconclusive" if refusing else "pass"
