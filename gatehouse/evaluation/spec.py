"""How a candidate is tried and measured, and the policy: what the gate demands of it."""

import inspect
import math
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, FiniteFloat, field_validator, model_validator

from gatehouse.configuration.strict import Duration
from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.evaluation.group_measures import GroupMeasureName
from gatehouse.evaluation.group_measures import problems_of as group_measure_problems
from gatehouse.metrics.catalogue import METRICS, MetricName, MetricNames, OwnName, is_own, metric_problem
from gatehouse.metrics.judging import TaskProfile
from gatehouse.metrics.tasks import Task
from gatehouse.store.builder_code import BuilderError, is_installed, named_object
from gatehouse.store.identity import Spec, Unordered, operational

SUITE_FILE, GOLDEN, IMPORTANCE = "integration.json", "golden.parquet", "importance.json"
"""The files of a suite: its checks; the numbers of the golden rows with their predictions. And one of an evaluation."""
PASS, FAIL, NOT_CHECKED = "pass", "fail", "not checked"
ONLINE = "online features"
"""The check that online retrieval returns the features that the candidate was trained on."""
Check = dict[str, str]
"""`check` (its name), `verdict` and `observed` of one check."""
LEAST_TEST_ROWS, LEAST_TEST_GROUPS = 100, 20
OF_METRICS = ("bar", "baseline", "champion", "floor", "guessing", "slices")
"""First words of rule names that continue with the name of a metric."""
RULE_NAMES = (
    *("bar", "baseline", "guessing", "leakage alarm", "champion", "floor", "slices", "slice", "validation"),
    *("leakage", "split checks", "warnings", "latency", "model size", "memory", "drift", "test rows", "fairness"),
    *("integration", "lineage", "regressions", "regression", "training age", "unseen rows", "alignment"),
)
"""First words of the names of the gate's rules; severity, owner, reason and exemptions refer to them."""


class EvaluationSpec(Spec):
    """What is measured on the test part."""

    metrics: MetricNames = Field(
        (), description="Metrics of your own, `package.module:name`, besides all of the task and those of the policy."
    )
    slices: tuple[str, ...] | dict[str, str] = Field(
        (),
        description="Columns for whose values metrics are also computed; or SQL expressions over test rows, by name.",
    )
    crossed_slices: tuple[tuple[str, str], ...] = Field(
        (), description="Pairs of names from `slices`: metrics are computed for each combination of their values."
    )
    min_slice_rows: int = Field(
        500, ge=1, description="Slices with fewer rows (for a ranking, fewer groups) are shown, but not judged."
    )
    calibration_bins: int = Field(20, ge=2, le=200, description="Bins of the calibration curve and error.")
    bootstrap_samples: int = Field(
        500, ge=20, le=10_000, description="Number of bootstrap resamples of the test rows, for confidence intervals."
    )
    resample_by: str = Field(
        "",
        description="What the bootstrap draws as a whole, because its rows are not independent: a column, or the "
        "`day` or `week` of the decision; empty for the groups that the split keeps together, or else the entities, "
        "or single rows if each has its own (for a ranking, groups).",
    )
    protected: Unordered = Field(
        (),
        description="Columns by whose values fairness is measured, besides those that the contract marks as protected.",
    )
    seed: int = Field(7, ge=0, description="Of the resamples.")

    @field_validator("slices")
    @classmethod
    def _in_no_order(cls, slices: tuple[str, ...] | dict[str, str]) -> tuple[str, ...] | dict[str, str]:
        return dict(sorted(slices.items())) if isinstance(slices, dict) else tuple(sorted(set(slices)))

    @field_validator("crossed_slices")
    @classmethod
    def _pairs_in_no_order(cls, pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted({(min(pair), max(pair)) for pair in pairs}))

    @model_validator(mode="after")
    def _crosses_what_is_named(self) -> "EvaluationSpec":
        if unknown := sorted({name for pair in self.crossed_slices for name in pair} - set(self.slices)):
            raise ValueError(
                f"crossed_slices: expected names from slices ({', '.join(self.slices) or 'none'}), found "
                f"{', '.join(unknown)}"
            )
        return self


class IntegrationSpec(Spec):
    """How a candidate is tried. The project's own tests are the files of its folder `integration/`."""

    rows: int = Field(
        32,
        ge=1,
        le=10_000,
        description="Number of test rows in the golden batch, evenly spaced; a ranking takes whole groups.",
    )
    latency_ms: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Largest 95th percentile of the time to score one row in a serving process, in milliseconds; "
        "null for no limit.",
    )
    memory_mb: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Largest memory of this process, in megabytes; null for no limit.",
    )


class Terms(Spec):
    """The severity of a rule, its owner, and its reason."""

    severity: Literal["refuse", "approval", "warn"] = Field(
        "refuse",
        description="Whether a broken rule refuses the candidate, lets a person decide (whatever `approval` says), or "
        "is only reported.",
    )
    owner: str = Field("", description="Owner of the rule: whom to ask about it.")
    reason: str = Field("", description="Why the rule exists.")


class Bar(Spec):
    """A bound that the candidate's own metric must keep; a value on the bound keeps it."""

    min: float | None = Field(None, allow_inf_nan=False, description="Least value.")
    max: float | None = Field(None, allow_inf_nan=False, description="Greatest value.")

    @model_validator(mode="before")
    @classmethod
    def _by_side(cls, bounds: Any) -> Any:
        if isinstance(bounds, (dict, Bar)):
            return bounds
        raise ValueError(f"expected min, max or both, as {{min: 0.7}}, found {bounds!r}")

    @model_validator(mode="after")
    def _bounds_something(self) -> "Bar":
        if self.min is None and self.max is None:
            raise ValueError("expected min, max or both, found neither")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"expected min <= max, found min {self.min:g} and max {self.max:g}")
        return self


def _require_tolerance(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if is_number or (isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?%", value)):
        return value
    raise ValueError(
        f"expected a number in the metric's unit, or a share of the champion's value as 0.5%, found {value!r}"
    )


Tolerance = Annotated[float | str, BeforeValidator(_require_tolerance)]
"""How much worse a value may be: in the metric's unit, or as a share of the other value, such as `0.5%`."""


def tolerated(tolerance: float | str, champion: float) -> float:
    """By how much a candidate may be worse than a champion of this value, in the metric's own unit."""
    return float(tolerance[:-1]) / 100 * abs(champion) if isinstance(tolerance, str) else tolerance


class ChampionRule(Spec):
    """How the candidate must compare with the champion on the same test rows.

    The candidate must not be inferior: the bound of the paired bootstrap interval that is worst for it is not worse
    than the champion by more than is tolerated, in the direction in which the metric is better. The best champion so
    far, the floor, is compared likewise. A candidate that equals the champion in every metric does not replace it.
    """

    metric: MetricName | None = Field(None, description="The metric that is compared; null for the task's objective.")
    tolerance: Tolerance = Field(
        "0.5%",
        description="How much worse than the champion the candidate may be: a number in the metric's unit, or a share "
        "of the champion's value. Below 0 the candidate must be better by so much.",
    )
    confidence: float = Field(0.95, gt=0.5, lt=1.0, description="Confidence level of the one-sided bound.")


class RegressionRule(Spec):
    """Comparisons with the champion that are tested together (Holm 1979)."""

    metrics: MetricNames = Field((), description="Metrics that are compared on all test rows.")
    slices: bool = Field(
        True, description="Whether the metric of the comparison with the champion is also compared in each slice."
    )
    tolerance: Tolerance = Field(
        "0.5%", description="How much worse the candidate may be, in the unit of each metric or as a share."
    )
    confidence: float = Field(
        0.95, gt=0.5, lt=1.0, description="Confidence that a refusal by this rule is not due to chance."
    )


class CostBounds(Spec):
    """Limits, null for none; times and memory are those of the machine that evaluates."""

    latency_ms: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Largest 95th percentile of the time to score one row, in milliseconds.",
    )
    size_mb: float | None = Field(
        None, gt=0.0, allow_inf_nan=False, description="Largest size of the model's files, in megabytes."
    )
    memory_mb: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Largest memory of a process that loads the model and scores a batch, in megabytes.",
    )

    @property
    def measures(self) -> bool:
        """Whether a bounded number differs between measurements."""
        return self.latency_ms is not None or self.memory_mb is not None


class LiveRules(Spec):
    """What must hold of a canary beside the champion on live outcomes.

    The canary goes back as soon as one bound is shown to be broken, and is promoted as soon as all are shown to hold.
    All intervals together hold at all looks with the confidence.
    """

    metrics: dict[MetricName, Annotated[FiniteFloat, Field(ge=0.0)]] = Field(
        default_factory=dict,
        description="By metric that is a mean over rows, such as `log_loss` or `mae`, how much worse the canary may "
        "be, in the metric's unit.",
    )
    values: dict[str, Annotated[FiniteFloat, Field(ge=0.0)]] = Field(
        default_factory=dict,
        description="By column of the outcomes of which more is better, such as `revenue`, how much less the canary "
        "may have in the mean.",
    )
    preferences: dict[str, Annotated[FiniteFloat, Field(ge=0.0)]] = Field(
        default_factory=dict,
        description="By column of the outcomes of which more is better, such as `clicked`, how much less of it the "
        "rows that the canary picked may have in interleaved rankings: 0.1 is 45 of 100 clicks, beside 55.",
    )
    slices: dict[str, Annotated[FiniteFloat, Field(ge=1.0)]] = Field(
        default_factory=dict,
        description="By column of the log or the outcomes, the factor by which the bounds above are wider within each "
        "of its values. The canary goes back if one is shown to be broken; no slice holds a promotion up.",
    )
    outcomes: int = Field(
        200, ge=20, description="Keys of the canary that must have an outcome before metrics and values are judged."
    )
    days: float | None = Field(
        28.0,
        gt=0.0,
        allow_inf_nan=False,
        description="Days from the first row of the canary after which an undecided one goes back; null for no limit.",
    )
    horizon: Duration | None = Field(
        None,
        gt=timedelta(0),
        description="How long after a decision its outcome may become known; later ones do not count; null for any.",
    )
    confidence: float = Field(
        0.95, gt=0.5, lt=1.0, description="Confidence that no bound is said to be broken wrongly."
    )
    max_error_rise: float = Field(
        0.01, ge=0.0, le=1.0, description="By how much the canary's share of failed rows may exceed the champion's."
    )
    max_latency_ms: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Milliseconds in which the canary must score 99 % of its rows; null for no limit.",
    )

    @model_validator(mode="after")
    def _compares(self) -> "LiveRules":
        if not (self.metrics or self.values or self.preferences):
            raise ValueError("expected something to compare in metrics, values or preferences, found nothing")
        if others := [name for name in self.metrics if not is_own(name) and METRICS[name].by_row is None]:
            raise ValueError(f"metrics: expected means over rows, such as log_loss or mae, found {', '.join(others)}")
        return self


class AlignmentRule(Spec):
    """How the differences of past candidates offline and on live outcomes must go together.

    The lower bound of the 95 % interval of the rank correlation must reach the least one; if only its upper bound does,
    the rule is inconclusive.
    """

    live: str = Field(description="What was compared on live outcomes: a metric, or a column under `live.values`.")
    min_correlation: float = Field(0.0, ge=-1.0, le=1.0, description="Least rank correlation.")
    min_candidates: int = Field(10, ge=4, description="With fewer candidates the rule is not checked.")


class RolloutRules(Spec):
    """How a canary gets to all requests: share by share, each after a live verdict, to champion or back."""

    shares: tuple[Annotated[float, Field(gt=0.0, lt=1.0)], ...] = Field(
        (0.01, 0.05, 0.25, 0.5), min_length=1, description="Shares of the requests that a canary gets, in this order."
    )
    min_hours: float = Field(
        24.0, ge=0.0, allow_inf_nan=False, description="Hours that a canary keeps each share at least."
    )
    outcomes: int = Field(
        100,
        ge=1,
        description="Keys of the canary that must have got an outcome at a share before it leaves it.",
    )

    @model_validator(mode="after")
    def _rise(self) -> "RolloutRules":
        if any(share >= after for share, after in pairwise(self.shares)):
            raise ValueError(f"shares: expected each above the one before it, found {list(self.shares)}")
        return self


class GatePolicy(Spec):
    """The promotion policy: every rule whose severity is `refuse` must hold. The task gives the defaults of nulls."""

    bars: dict[MetricName, Bar] = Field(default_factory=dict, description="Bounds by metric.")
    must_beat_baseline: MetricNames | None = Field(
        None,
        description="Metrics in which the candidate must be better than the baseline, or, if it is linear itself, as "
        "good; null for the objective.",
    )
    better_than_guessing: float | None = Field(
        0.95,
        gt=0.5,
        lt=1.0,
        description="Confidence with which the candidate must be shown to be better than a guess, which is its own "
        "predictions dealt to other rows at random; null if that is not asked. If the test rows cannot show it, the "
        "verdict is inconclusive.",
    )
    leakage_alarm: dict[MetricName, FiniteFloat] | None = Field(
        None,
        description="By metric, the value that is too good to be true: a better model is refused, because it probably "
        "uses a leak.",
    )
    champion: ChampionRule = Field(ChampionRule(), description="How the candidate must compare with the champion.")
    regressions: RegressionRule | None = Field(
        None, description="Metrics and slices that may not be shown to be worse than the champion's; null for none."
    )
    slices: dict[MetricName, FiniteFloat] | None = Field(
        None, description="Values of metrics that every judged slice must reach."
    )
    fairness: dict[str, dict[GroupMeasureName, Annotated[float, Field(ge=0.0, allow_inf_nan=False)]]] = Field(
        default_factory=dict,
        description="Limits by protected column: the largest difference or error between groups, the smallest ratio.",
    )
    least_test_rows: int | None = Field(
        None,
        ge=1,
        description="If the models are measured on fewer test rows than this (for a ranking, groups), the verdict is "
        "inconclusive. Rows that a model was fitted on do not count. Null for 100 rows, or 20 groups.",
    )
    least_rarer_rows: int = Field(
        20,
        ge=1,
        description="For classes: if fewer test rows than this are outside of the most frequent class (for `binary`, "
        "in the rarer class), the verdict is inconclusive.",
    )
    warnings: Literal["allow", "refuse"] = Field(
        "allow",
        description="Whether a candidate passes if the checks of its data gave warnings; they are recorded with it.",
    )
    max_psi: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Largest population stability index of a feature from train to test; null for no limit.",
    )
    max_training_age: Duration | None = Field(
        None,
        ge=timedelta(0),
        description="Longest time from the newest decision that the model was trained on (after a refit, also of the "
        "validation part) to the newest decision of the test part; null for no limit. The clock is not used: an "
        "evaluation must give the same result whenever it runs.",
    )
    complete_lineage: bool = Field(
        False,
        description="Refuse a candidate whose manifests do not lead to a snapshot, its configuration, feature tables, "
        "training set and split that are in the store; registration always requires that, and also who trained it and "
        "how.",
    )
    cost: CostBounds = Field(CostBounds(), description="Limits on the latency, size and memory of a model.")
    require_integration: bool = Field(
        False, description="Whether a candidate without integration tests is refused; one that failed them always is."
    )
    require_online: bool = Field(
        False,
        description="Whether a candidate is refused if its online features were not compared with the offline ones.",
    )
    own_rules: dict[OwnName, dict[str, Any]] = Field(
        default_factory=dict, description="Rules of your own, `package.module:name`, each with its settings."
    )
    rules: dict[str, Terms] = Field(
        default_factory=dict,
        description="Severity, owner and reason of rules, by the name that verdicts show, or by its first words: "
        "`slice` for all slices, `slice carrier=OO` for one. If several names match a rule, the longest one applies.",
    )
    approval: Literal["automatic", "manual"] = Field("automatic", description="Who makes a passing model the champion.")
    inconclusive: Literal["refuse", "approval"] = Field(
        "refuse",
        description="What happens if the test rows cannot show whether a rule is kept: the candidate is refused, or "
        "a person decides.",
    )
    approval_days: int = Field(7, ge=1, le=365, description="How many days an approval by a person is valid.")
    four_eyes: bool = Field(
        False, description="With `manual`: a person who trained or submitted a model may not approve it."
    )
    alignment: AlignmentRule | None = Field(
        None,
        description="How offline and live differences of past candidates must go together; null if that is not asked. "
        "It is checked when a candidate is registered.",
    )
    live_required: bool = Field(
        False,
        description="Whether a candidate becomes champion only after the verdict *promote* on live outcomes. The first "
        "champion needs none.",
    )
    rollout: RolloutRules = operational(
        RolloutRules(), description="How a canary gets from its first share to champion; in no key of the gate."
    )
    live: LiveRules | None = operational(
        None, description="What must hold of a canary on live outcomes; no rule of the gate, and in no key of it."
    )

    @model_validator(mode="after")
    def _names_rules(self) -> "GatePolicy":
        names = [own_rule_name(name) for name in self.own_rules]
        for name in names:
            if name in RULE_NAMES or names.count(name) > 1:
                raise ValueError(f"own_rules: expected functions whose names no other rule has, found {name!r}")
        if self.alignment and self.live:
            compared = (*self.live.metrics, *self.live.values, *self.live.preferences)
            if self.alignment.live not in compared:
                raise ValueError(
                    f"alignment.live: expected one of what `live` compares, {', '.join(compared)}, found "
                    f"{self.alignment.live!r}"
                )
        if unknown := [name for name in self.rules if not self._first_words(name)]:
            raise ValueError(
                f"rules: expected names of rules, which begin with {', '.join((*RULE_NAMES, *names))}, found "
                f"{unknown[0]!r}"
            )
        return self

    @property
    def named_metrics(self) -> dict[str, tuple[str, ...]]:
        """The metrics that the policy names, by the key that names them."""
        return {
            "bars": (*self.bars,),
            "must_beat_baseline": self.must_beat_baseline or (),
            "leakage_alarm": (*(self.leakage_alarm or ()),),
            "champion.metric": (self.champion.metric,) if self.champion.metric else (),
            "slices": (*(self.slices or ()),),
            "rules": tuple(
                rest for head, _, rest in (name.partition(" ") for name in self.rules) if head in OF_METRICS and rest
            ),
            "regressions.metrics": self.regressions.metrics if self.regressions else (),
        }

    @property
    def own_metrics(self) -> tuple[str, ...]:
        """The metrics of a project's own that the policy names."""
        return tuple(sorted({name for names in self.named_metrics.values() for name in names if is_own(name)}))

    def resolved(self, profile: TaskProfile) -> "GatePolicy":
        """The policy with the task's defaults in place of nulls."""
        champion = self.champion.model_copy(update={"metric": self.champion.metric or profile.objective})
        defaults = {
            "must_beat_baseline": (profile.objective,),
            "leakage_alarm": dict(profile.leakage_alarm),
            "slices": dict(profile.slices),
        }
        missing = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return self.model_copy(update=missing | {"champion": champion})

    def problems(self, task: Task) -> Iterator[str]:
        """Metrics and measures of the policy that the task does not have, and rules that cannot be called."""
        for column, bounds in self.fairness.items():
            yield from group_measure_problems(f"fairness.{column}", bounds, task.name)
        for key, metrics in self.named_metrics.items():
            problems = (metric_problem(metric, task.name) for metric in sorted(set(metrics)))
            yield from (f"{key}: {problem}" for problem in problems if problem)
        for name, settings in self.own_rules.items():
            if is_installed(name):  # Else whoever judges says that it is missing.
                try:
                    inspect.signature(named_object(name)).bind(None, **settings)
                except (BuilderError, TypeError, ValueError) as error:
                    yield f"own_rules.{name}: expected a function of the evidence and these settings: {error}"

    def terms_of(self, rule: str) -> Terms:
        """The terms of the rule of this name: those under the longest name that matches it."""
        return self.rules[max(names, key=len)] if (names := self._matching(rule)) else Terms()

    def unused(self, applied: tuple[str, ...]) -> tuple[str, ...]:
        """Names under `rules` that match none of the rules that were applied, given by name."""
        by_ledger = ("alignment",) if self.alignment else ()
        used = {name for rule in (*applied, *by_ledger) for name in self._matching(rule)}
        return tuple(sorted({*self.rules} - used))

    def _matching(self, rule: str) -> list[str]:
        return [name for name in self.rules if begins_with(rule, name) and len(name) >= len(self._first_words(rule))]

    def _first_words(self, rule: str) -> str:
        """The longest name that the rule's begins with: `leakage` does not match the leakage alarm; empty for none."""
        names = (*RULE_NAMES, *map(own_rule_name, self.own_rules))
        return max((name for name in names if begins_with(rule, name)), key=len, default="")


def own_names(spec: EvaluationSpec, policy: GatePolicy) -> tuple[str, ...]:
    """All metrics and rules of a project's own, whose code decides what an evaluation says."""
    return (*filter(is_own, spec.metrics), *policy.own_metrics, *policy.own_rules)


def require_fit(spec: EvaluationSpec, policy: GatePolicy, task: Task) -> None:
    """Raise ConfigurationError, with every problem, if metrics or measures are not of the task."""
    problems = [f"spec.metrics: {problem}" for name in spec.metrics if (problem := metric_problem(name, task.name))]
    if problems := [*problems, *policy.problems(task)]:
        raise ConfigurationError(f"The policy does not fit the task: {'; '.join(problems)}.")


def begins_with(rule: str, name: str) -> bool:
    """Whether the name of a rule is another name, or begins with its words."""
    return rule == name or rule.startswith(f"{name} ")


def own_rule_name(name: str) -> str:
    """The first words of the names of a project's own rule: `night revenue` for `shop.rules:night_revenue`."""
    return name.partition(":")[2].replace("_", " ")


def reasons_of(checks: Sequence[Check]) -> dict[str, tuple[str, ...]]:
    """The reasons why a suite failed, and as warnings what it did not check."""
    shown = [(check["verdict"], f"{check['check']}: {check['observed']}") for check in checks]
    unchecked = (f"{text} ({NOT_CHECKED})" for verdict, text in shown if verdict == NOT_CHECKED)
    return {"reasons": tuple(text for verdict, text in shown if verdict == FAIL), "warnings": tuple(unchecked)}


def described(error: GatehouseError) -> dict[str, Any]:
    """An error as a program of the suite writes it down."""
    return {"name": type(error).__name__, "permanent": error.permanent, "message": str(error)}


def is_test_file(path: str) -> bool:
    """Whether pytest looks for tests in a file of this path."""
    name = path.rpartition("/")[2]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))
