"""The gate: a pure function from policy and evidence to a verdict with every rule that was applied."""

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
    """What breaking a rule means, who answers for it, and why it is there."""

    severity: Severity = Field(
        "refuse", description="Whether a broken rule refuses the candidate, or is only reported."
    )
    owner: str = Field("", description="Owner of the rule: whom to ask about it.")
    reason: str = Field("", description="Why the rule exists.")


class Termed(Spec):
    """The piece of the policy that says more of single rules."""

    rules: dict[str, Terms] = Field(
        default_factory=dict,
        description="Severity, owner and reason of rules, by the name that verdicts show, or by its first words: "
        "`slice` for all slices, `slice carrier=OO` for one. If several names match a rule, the longest one applies.",
    )

    @field_validator("rules")
    @classmethod
    def _of_rules_that_exist(cls, rules: dict[str, Terms]) -> dict[str, Terms]:
        if unknown := [name for name in rules if not _head(name)]:
            heads = ", ".join(head for each in families() for head in each.names)
            raise ValueError(f"expected names of rules, which begin with {heads}, found {unknown[0]!r}")
        return rules

    def terms_of(self, rule: str) -> Terms:
        """What the policy says of the rule of this name."""
        return self.rules[max(names, key=len)] if (names := self._standing_for(rule)) else Terms()

    def unused(self, applied: "tuple[Rule, ...]") -> tuple[str, ...]:
        """Names under `rules` that stand for none of the rules that were applied."""
        used = {name for rule in applied for name in self._standing_for(rule.name)}
        return tuple(sorted({*self.rules} - used))

    def _standing_for(self, rule: str) -> list[str]:
        return [name for name in self.rules if _stands_for(name, rule) and len(name) >= len(_head(rule))]


def _stands_for(name: str, rule: str) -> bool:
    return rule == name or rule.startswith(f"{name} ")


def _head(rule: str) -> str:
    """The longest of the families' names that this is or begins with: `leakage` is no name of the leakage alarm."""
    return max((head for each in families() for head in each.names if _stands_for(head, rule)), key=len, default="")


@dataclass(frozen=True)
class Rule:
    """One rule as it was applied: what was expected, what was found, and whether it holds.

    A rule that does not hold is `inconclusive` where the test rows can neither show that it is kept nor that it is
    broken. `severity`, `owner` and `reason` are what the policy says of it.
    """

    name: str
    expected: str
    found: str
    holds: bool
    inconclusive: bool = False
    severity: Severity = "refuse"
    owner: str = ""
    reason: str = ""

    @property
    def refuses(self) -> bool:
        """Whether it does not hold, and is not only told."""
        return not self.holds and self.severity == "refuse"

    @property
    def warns(self) -> bool:
        """Whether it does not hold, and is only told."""
        return not self.holds and self.severity == "warn"

    def __str__(self) -> str:
        terms = ": ".join(filter(None, [self.owner and f"owner {self.owner}", self.reason]))
        return f"{self.name}: expected {self.expected}, found {self.found}{terms and f' ({terms})'}"


@dataclass(frozen=True)
class Comparison:
    """Candidate against champion, or against its own predictions of other rows in its place, on the same rows.

    `worse_by` and its two bounds are positive to the candidate's disadvantage, whatever the metric's direction. The
    bounds are each one-sided, at the confidence of the policy. `standard_error` is that of `worse_by`, from the draws.
    `units` is how many rows, groups or days were drawn from; None where an evaluation of earlier did not say.
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
        """Whether there are too few units for bounds to mean anything: draws of one unit are all the same."""
        return self.units is not None and self.units < LEAST_UNITS

    def smallest_shown(self, confidence: float) -> float:
        """The smallest regression that these test rows can show, in the metric's own unit.

        An equal candidate keeps a tolerance of that size with a chance of 80 %: (z of confidence + z of 0.8) times the
        standard error of the difference (Julious 2004, section 4.1).
        """
        normal = NormalDist()
        return (normal.inv_cdf(confidence) + normal.inv_cdf(_POWER)) * self.standard_error


def figure(value: float) -> str:
    """A value of any metric as verdicts write it. They are data, so how pages show a metric must not change them."""
    plain = value == 0 or 0.001 <= abs(value) < 10
    return format(value, ".4f" if plain else ".4g" if abs(value) < 1e10 else ".3e")


def side_of(worse_by: float) -> str:
    """By how much a model is worse or better, in words."""
    return f"{abs(worse_by):.5f} {'worse' if worse_by > 0 else 'better'}" if worse_by else "equal"


@dataclass(frozen=True)
class DataCheck:
    """A check of the data that the candidate was made from: its name, its verdict, and its warnings.

    The verdict is `not checked` where the evaluation was given none: that is a warning.
    """

    name: str
    verdict: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Suite:
    """What came of the integration suite: `pass`, `fail`, or `not checked` where it was not run; and why.

    `online` is the same of the check of online features; empty where the suite has no such check.
    """

    verdict: str = NOT_CHECKED
    reasons: tuple[str, ...] = ("was not given",)
    warnings: tuple[str, ...] = ()
    online: str = ""


NOT_TRIED = Suite()


@dataclass(frozen=True)
class Cost:
    """What a model costs, as it was measured: another number each time.

    Attributes:
        hardware: The machine that it was measured on.
        latency_ms: Milliseconds in which 95 of 100 single rows were scored.
        memory_mb: Most megabytes of a process that scores with it; None where nobody asked.
        measurement: Key of the record that holds all that was measured.
    """

    hardware: str
    latency_ms: float
    memory_mb: float | None
    measurement: str

    @classmethod
    def of(cls, told: Mapping[str, Any], measurement: str) -> "Cost":
        """From a record of what an evaluation measured, and its key."""
        latency = told["latency"]
        return cls(latency["hardware"], latency["single_row_ms"]["p95"], told.get("memory_mb"), measurement)


UNSEEN, ENOUGH = "unseen rows", "test rows"


@dataclass(frozen=True)
class Counted:
    """How much was measured.

    Attributes:
        units: Test rows, or groups of a ranking.
        groups: Whether they are groups.
        rarer: Test rows outside of the most frequent class; None where labels are no classes.
    """

    units: int
    groups: bool = False
    rarer: int | None = None


@dataclass(frozen=True)
class Seen:
    """Test rows that a model was fitted on; they were taken out before anything was measured.

    Attributes:
        rows: How many, by the role of the model.
        of: Rows of the test part.
        left: Rows that no model was fitted on.
        lacking: Why nothing can be measured on these, in words: then all rows were, and none decides; empty else.
        unread: By role, whose rows cannot be told, and why.
        passing: Whether some of what cannot be read may be back later.
    """

    rows: Mapping[str, int]
    of: int
    left: int
    lacking: str = ""
    unread: tuple[str, ...] = ()
    passing: bool = False

    def __str__(self) -> str:
        if self.left == self.of:
            return f"none of the {self.of:,} test rows is among them"
        told = " and ".join(f"the {role} was fitted on {rows:,}" for role, rows in self.rows.items() if rows)
        rest = f"these were taken out, and {self.left:,} are left"
        if self.lacking:
            rest = f"the {self.left:,} others cannot be judged on ({self.lacking}), so all were measured on"
        return f"{told} of the {self.of:,} test rows; {rest}"


@dataclass(frozen=True)
class Origins:
    """What is known of the data that a candidate was made from.

    Attributes:
        missing: What its lineage lacks, in words.
        lacking: Why the parts of its split are not known, in words; empty where they are.
        age_days: From the newest decision that it learned from to that of the test part; None without decision times.
        psi: Population stability index from train to test, by feature; None where there are too few rows.
        passing: Whether some of it cannot be read, and may be back later.
    """

    missing: tuple[str, ...] = ()
    lacking: str = ""
    age_days: float | None = None
    psi: Mapping[str, float | None] = field(default_factory=dict)
    passing: bool = False


@dataclass(frozen=True)
class Evidence:
    """What the rules look at.

    Attributes:
        model: The candidate's manifest: its files, what it was made from and how.
        candidate: Its test metrics.
        baseline: The same metrics of the baseline on the same rows and features.
        comparison: Against the champion in the metric of the policy, or None where there is none.
        slices: By metric, its value in every judged slice, by the slice's name.
        slices_asked: Whether the policy states limits on slices itself: then a slice must be judged. Limits that come
            from the task alone ask for none.
        data_checks: Of the data that the candidate was made from.
        cost: As it was measured; None where it was not.
        guessing: Against its own predictions of other rows; None where nobody asked.
        comparisons: Against the champion in every metric of the task; empty where there is none.
        slice_comparisons: Against the champion in the metric of the policy, by the name of each judged slice.
        seen: Test rows that a model was fitted on; None where nobody looked.
        fairness: What was measured by each protected column, by its name.
        origins: Of the candidate's data; None where nobody looked.
        integration: What came of trying the candidate as serving would have it.
        counted: How many rows were measured; None where an earlier evaluation does not say.
    """

    model: Manifest
    candidate: Metrics
    baseline: Metrics
    comparison: Comparison | None
    slices: Mapping[str, Metrics]
    slices_asked: bool
    data_checks: tuple[DataCheck, ...] = ()
    cost: Cost | None = None
    guessing: Comparison | None = None
    comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    slice_comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    seen: Seen | None = None
    fairness: Mapping[str, Fairness] = field(default_factory=dict)
    origins: Origins | None = None
    integration: Suite = NOT_TRIED
    counted: Counted | None = None


@dataclass(frozen=True)
class Family:
    """Rules that one file of the folder `rules` holds.

    Attributes:
        policy: Their piece of the policy, whose fields are keys of `policy.yaml`.
        rules: From a policy and the evidence to each rule that was applied, also one that holds.
        names: What the names of their rules are or begin with.
        of_rows: Whether they look at what was measured on the test rows.
    """

    policy: type[Spec]
    rules: Callable[[Any, Evidence], Iterator[Rule]]
    names: tuple[str, ...]
    of_rows: bool = True


def family(
    policy: type[Spec], *names: str, of_rows: bool = True
) -> Callable[[Callable[[Any, Evidence], Iterator[Rule]]], Family]:
    """Declare a function as the family of rules of its name, which must be that of its file.

    Args:
        policy: Their piece of the policy.
        *names: What the names of their rules are or begin with; by default the name of the function, in words.
        of_rows: Whether they look at what was measured on the test rows.
    """
    return lambda rules: Family(policy, rules, names or (rules.__name__.replace("_", " "),), of_rows)


@cache
def families() -> tuple[Family, ...]:
    """All families, in the order of the report: those of the first gates, then the others by name."""
    names = [path.stem for path in (Path(__file__).parent / "rules").glob("[a-z]*.py")]
    names.sort(key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    return tuple(getattr(importlib.import_module(_ROOM.replace("*", name)), name) for name in names)


def judge(policy: Termed, evidence: Evidence) -> tuple[Rule, ...]:
    """Apply every rule. The candidate passes if it breaks no rule that refuses; NaN breaks every rule that looks at it.

    Improving one metric and leaving the rest as it is never breaks a rule, except for the leakage alarm, which is there
    to distrust a metric that is too good. Where there are too few test rows, or too few are left on which no model was
    fitted, a rule on them is not broken but inconclusive.

    Args:
        policy: The promotion policy (`GatePolicy`), resolved for the task.
        evidence: What was measured.
    """
    applied = [(each.of_rows, rule) for each in families() for rule in each.rules(policy, evidence)]
    rules = [(of_rows, replace(rule, **dict(policy.terms_of(rule.name)))) for of_rows, rule in applied]
    if any(rule.name in (UNSEEN, ENOUGH) and rule.refuses and rule.inconclusive for _, rule in rules):
        return tuple(replace(rule, inconclusive=not rule.holds) if of_rows else rule for of_rows, rule in rules)
    return tuple(rule for _, rule in rules)


NONE_REFUSES = (
    "no rule of this policy can refuse a candidate, as each has severity: warn, so that every candidate passes; leave "
    "out the severity of what a candidate must keep"
)


def verdict_of(rules: tuple[Rule, ...]) -> Outcome:
    """`refused` if a rule that refuses is broken, `inconclusive` if the rows cannot tell of one, else `pass`."""
    missed = [rule for rule in rules if rule.refuses]
    return "refused" if any(not rule.inconclusive for rule in missed) else "inconclusive" if missed else "pass"
