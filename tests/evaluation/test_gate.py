"""The gate's algebra: what improves a candidate never turns a pass into a refusal, and nothing is judged by NaN."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gatehouse.evaluation import gate
from gatehouse.evaluation.gate import (
    NOT_TRIED,
    Comparison,
    Cost,
    DataCheck,
    Evidence,
    Rule,
    Suite,
    applied_rules,
    verdict_of,
)
from gatehouse.evaluation.spec import (
    NOT_CHECKED,
    RULE_NAMES,
    Bar,
    ChampionRule,
    CostBounds,
    GatePolicy,
    Terms,
    begins_with,
)
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.tasks import BINARY
from gatehouse.store.manifest import FileEntry, Manifest

METRICS = ("roc_auc", "average_precision", "log_loss", "brier", "calibration_error")
SHARE = st.floats(0.0, 1.0)
BARS = st.builds(lambda least: Bar(min=least), SHARE) | st.builds(lambda most: Bar(max=most), SHARE)
POLICIES = st.builds(
    GatePolicy,
    bars=st.dictionaries(st.sampled_from(METRICS), BARS),
    must_beat_baseline=st.lists(st.sampled_from(METRICS), unique=True).map(tuple),
    leakage_alarm=st.builds(lambda most: {"roc_auc": most}, st.floats(0.51, 1.0)),
    champion=st.builds(ChampionRule, metric=st.sampled_from(METRICS), tolerance=st.floats(-1.0, 1.0)),
    slices=st.builds(lambda least: {"roc_auc": least}, SHARE),
)
MEASURED = st.fixed_dictionaries(dict.fromkeys(METRICS, SHARE))
COMPARISONS = st.none() | st.builds(
    Comparison,
    metric=st.sampled_from(METRICS),
    candidate=SHARE,
    champion=SHARE,
    worse_by=st.floats(-1, 1),
    worst_bound=st.floats(-1, 1),
    best_bound=st.floats(-1, 1),
)
SLICES = st.dictionaries(st.text(max_size=4), SHARE, max_size=4)

MODEL = Manifest("models", "delays", (FileEntry("weights.safetensors", "0" * 64, 1_000),))
GOOD = {"roc_auc": 0.74, "average_precision": 0.5, "log_loss": 0.48, "brier": 0.15, "calibration_error": 0.01}
BASELINE = {"roc_auc": 0.72, "average_precision": 0.4, "log_loss": 0.50, "brier": 0.17, "calibration_error": 0.02}
BETTER = Comparison("log_loss", 0.48, 0.485, -0.005, -0.003, -0.007)
POLICY = GatePolicy(bars={"roc_auc": Bar(min=0.725), "log_loss": Bar(max=0.495)}, slices={"roc_auc": 0.6})


def judged(
    policy: GatePolicy,
    candidate: dict[str, float],
    baseline: dict[str, float],
    comparison: Comparison | None,
    slices: dict[str, float],
) -> tuple[Rule, ...]:
    """The rules as they are applied to a binary candidate; `slices` are judged by ROC AUC."""
    evidence = Evidence(MODEL, candidate, baseline, comparison, {"roc_auc": slices}, policy.slices is not None)
    return applied_rules(policy.resolved(profile_of(BINARY)), evidence)


def broken(**changes: object) -> list[str]:
    """Names of the rules that the good candidate breaks after some changes."""
    evidence = {"policy": POLICY, "candidate": GOOD, "baseline": BASELINE, "comparison": BETTER, "slices": {"a": 0.7}}
    return [rule.name for rule in judged(**(evidence | changes)) if not rule.holds]  # type: ignore[arg-type]  # Keywords of mixed types.


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        ({"candidate": GOOD | {"roc_auc": 0.7249}}, ["bar roc_auc"]),
        ({"candidate": GOOD | {"log_loss": 0.4951}}, ["bar log_loss"]),
        ({"baseline": BASELINE | {"log_loss": 0.48}}, ["baseline log_loss"]),
        ({"candidate": GOOD | {"roc_auc": 0.96}}, ["leakage alarm roc_auc"]),
        ({"comparison": replace(BETTER, worst_bound=0.0025)}, ["champion log_loss"]),
        ({"slices": {"a": 0.7, "b": 0.59, "c": 0.1}}, ["slice b", "slice c"]),
    ],
)
def test_each_rule_refuses_alone_and_says_why(changes: dict[str, object], rules: list[str]) -> None:
    assert broken(**changes) == rules


MISSING = DataCheck("validation", NOT_CHECKED, ("was not given",))
CLEAN, WARNED = DataCheck("leakage", "pass", ()), DataCheck("split checks", "pass", ("duplicates: 3 of 100 rows",))


@pytest.mark.parametrize(
    ("warnings", "checks", "rules"),
    [
        ("allow", (), []),
        ("allow", (CLEAN, WARNED), []),
        ("allow", (CLEAN, DataCheck("validation", "fail", ())), ["validation"]),
        ("allow", (CLEAN, DataCheck("validation", "unreadable", ())), ["validation"]),
        ("refuse", (CLEAN,), []),
        ("refuse", (CLEAN, WARNED), ["warnings"]),
        ("allow", (CLEAN, MISSING), []),
        ("refuse", (CLEAN, MISSING), ["warnings"]),
        ("refuse", (), ["warnings"]),  # Nothing was looked at, so nothing is known of warnings.
    ],
)
def test_the_data_is_judged_as_the_policy_wants(warnings: str, checks: tuple[DataCheck, ...], rules: list[str]) -> None:
    evidence = Evidence(MODEL, GOOD, BASELINE, BETTER, {"roc_auc": {"a": 0.7}}, True, checks)
    policy = POLICY.model_copy(update={"warnings": warnings}).resolved(profile_of(BINARY))
    result = [rule for rule in applied_rules(policy, evidence) if not rule.holds]
    assert [rule.name for rule in result] == rules
    assert all("3 of 100 rows" in rule.observed for rule in result if WARNED in checks)


@pytest.mark.parametrize(
    ("best", "worst", "error", "verdict"),
    [
        (-0.001, 0.002, 0.001, "pass"),
        (-0.001, 0.003, 0.001, "inconclusive"),  # The rows show 0.00249 at least, above the tolerance of 0.002425.
        (-0.001, 0.003, 0.0009, "refused"),  # They could have shown that it is kept.
        (0.0025, 0.003, 0.001, "refused"),  # The whole interval is beyond the tolerance.
        (math.nan, math.nan, 0.001, "refused"),
    ],
)
def test_an_interval_that_spans_a_tolerance_below_what_the_rows_can_show_is_inconclusive(
    best: float, worst: float, error: float, verdict: str
) -> None:
    result = Comparison("log_loss", 0.486, 0.485, 0.001, worst, best, error)
    rules = judged(POLICY, GOOD, BASELINE, result, {"a": 0.7})
    assert verdict_of(rules) == verdict
    reported = [rule.observed for rule in rules if rule.inconclusive]
    assert all("the smallest regression that these test rows can show is 0.00249" in entry for entry in reported)
    assert verdict_of((*rules, Rule("other", "a", "b", False))) == "refused", "what is broken counts more"


def test_figures_are_written_alike_everywhere() -> None:
    figures = [gate.figure(value) for value in (0.0, 0.001, 0.000999, 9.9999, 10.0, 1e10, -0.5)]
    assert figures == ["0.0000", "0.0010", "0.000999", "9.9999", "10", "1.000e+10", "-0.5000"]
    assert gate.side_of(0.0) == "equal" and gate.side_of(1e-5) == "0.00001 worse"


def test_an_equal_candidate_keeps_the_smallest_tolerance_four_times_in_five() -> None:
    error, draw = 0.3, np.random.default_rng(0)
    tolerance = Comparison("log_loss", 0, 0, 0, 0, 0, error).smallest_shown(0.95)
    bounds = draw.normal(0, error, 100_000) + 1.644854 * error
    assert np.mean(bounds <= tolerance) == pytest.approx(0.8, abs=0.005)


@pytest.mark.parametrize(("log_loss", "holds"), [(0.40, True), (0.48, True), (0.4895, True), (0.4897, False)])
def test_a_linear_candidate_is_as_good_as_the_baseline(log_loss: float, holds: bool) -> None:
    linear = replace(MODEL, configuration={"model": {"architecture": "linear"}})
    candidate, of_baseline = {"log_loss": log_loss}, {"log_loss": 0.48}
    for model, expected in ((linear, holds), (MODEL, log_loss < 0.48)):
        evidence = Evidence(model, candidate, of_baseline, None, {}, False)
        rules = applied_rules(GatePolicy(must_beat_baseline=("log_loss",)), evidence)
        assert [rule.holds for rule in rules if rule.name == "baseline log_loss"] == [expected]


WARN = Terms(severity="warn", owner="ops", reason="few flights")


@pytest.mark.parametrize(
    ("terms", "verdict", "warned"),
    [
        ({"slice b": WARN}, "refused", ["slice b"]),
        ({"slice": WARN}, "pass", ["slice b", "slice c"]),
        ({"slice": WARN, "slice c": Terms(owner="risk")}, "refused", ["slice b"]),
        ({"slices": WARN}, "refused", []),
        ({"slices": WARN, "slice": WARN, "bar": WARN}, "pass", ["slice b", "slice c"]),
    ],
)
def test_a_broken_rule_refuses_or_is_told_as_the_policy_says(
    terms: dict[str, Terms], verdict: str, warned: list[str]
) -> None:
    policy = POLICY.model_copy(update={"rules": terms})
    rules = judged(policy, GOOD, BASELINE, BETTER, {"a": 0.7, "b": 0.59, "c": 0.1})
    assert verdict_of(rules) == verdict
    assert [rule.name for rule in rules if rule.warns] == warned
    assert all(str(rule).endswith(" (owner ops: few flights)") for rule in rules if rule.warns)


def test_a_broken_rule_of_severity_approval_refuses_nobody_and_asks_a_person() -> None:
    policy = POLICY.model_copy(update={"rules": {"slice": Terms(severity="approval", reason="few flights")}})
    rules = judged(policy, GOOD, BASELINE, BETTER, {"a": 0.7, "b": 0.59, "c": 0.1})
    assert verdict_of(rules) == "pass"
    assert [rule.name for rule in rules if rule.asks] == ["slice b", "slice c"] == [r.name for r in rules if r.warns]
    assert all(str(rule).endswith(" (a person decides: few flights)") for rule in rules if rule.asks)


def test_a_name_stands_for_no_rule_of_a_family_with_a_longer_name() -> None:
    policy = POLICY.model_copy(update={"rules": {"leakage": WARN, "bar": WARN}})
    rules = judged(policy, GOOD | {"roc_auc": 0.96}, BASELINE, BETTER, {"a": 0.7})
    assert [rule.name for rule in rules if rule.refuses] == ["leakage alarm roc_auc"]
    assert policy.unused(tuple(rule.name for rule in rules)) == ("leakage",)


def test_a_limit_that_is_written_needs_a_judged_slice() -> None:
    (rule,) = [rule for rule in judged(POLICY, GOOD, BASELINE, BETTER, {}) if not rule.holds]
    assert str(rule) == "slices roc_auc: expected at least one judged slice, found 0"
    assert broken(slices={}, policy=POLICY.model_copy(update={"slices": None})) == [], "the task's limit asks for none"


@given(POLICIES, MEASURED, MEASURED, COMPARISONS, SLICES, st.sampled_from(METRICS), st.floats(0, 1))
def test_improving_a_metric_never_makes_a_verdict_worse(
    policy: GatePolicy,
    candidate: dict[str, float],
    baseline: dict[str, float],
    comparison: Comparison | None,
    slices: dict[str, float],
    metric: str,
    gain: float,
) -> None:
    lower = metric_named(metric).better == "lower"
    # A bound that asks for a bad metric (a largest ROC AUC) is an alarm, not a bar: left out, like the alarm itself.
    bars = {
        name: bar
        for name, bar in policy.bars.items()
        if (bar.max is not None) == (metric_named(name).better == "lower")
    }
    policy = policy.model_copy(update={"bars": bars})
    better = candidate | {metric: candidate[metric] + (-gain if lower else gain)}
    assume(better["roc_auc"] <= (policy.leakage_alarm or {})["roc_auc"])
    before = judged(policy, candidate, baseline, comparison, slices)
    assert all(any(begins_with(rule.name, name) for name in RULE_NAMES) for rule in before)
    after = judged(policy, better, baseline, comparison, slices)
    order = ("refused", "inconclusive", "pass")
    assert order.index(verdict_of(after)) >= order.index(verdict_of(before))


@given(POLICIES, MEASURED, MEASURED, COMPARISONS, SLICES, st.floats(0, 1), st.floats(0, 1))
def test_a_worse_champion_and_better_slices_never_turn_a_pass_into_a_refusal(
    policy: GatePolicy,
    candidate: dict[str, float],
    baseline: dict[str, float],
    comparison: Comparison | None,
    slices: dict[str, float],
    gain: float,
    lift: float,
) -> None:
    eased = comparison and replace(
        comparison, worse_by=comparison.worse_by - gain, worst_bound=comparison.worst_bound - gain
    )
    lifted = {name: min(1.0, value + lift) for name, value in slices.items()}
    before = judged(policy, candidate, baseline, comparison, slices)
    after = judged(policy, candidate, baseline, eased, lifted)
    order = ("refused", "inconclusive", "pass")
    assert order.index(verdict_of(after)) >= order.index(verdict_of(before))


def test_limits_of_metrics_that_are_better_low_are_upper_ones() -> None:
    policy = GatePolicy(slices={"log_loss": 0.5}, leakage_alarm={"log_loss": 0.4}).resolved(profile_of(BINARY))
    slices = {"log_loss": {"a": 0.45, "b": 0.55}}
    rules = {rule.name: rule for rule in applied_rules(policy, Evidence(MODEL, GOOD, BASELINE, None, slices, True))}
    assert str(rules["slice b"]) == "slice b: expected log_loss of at most 0.5, found 0.5500"
    assert rules["leakage alarm log_loss"].holds
    assert not rules["slice b"].holds
    low = Evidence(MODEL, GOOD | {"log_loss": 0.39}, BASELINE, None, {"log_loss": {"a": 0.45}}, True)
    reported = [str(rule) for rule in applied_rules(policy, low) if not rule.holds]
    assert reported == ["leakage alarm log_loss: expected log_loss of at least 0.4, found 0.3900"]


@pytest.mark.parametrize(
    ("bounds", "cost", "names"),
    [
        ({"latency_ms": 5.0, "memory_mb": 300.0, "size_mb": 0.001}, Cost("x, 2 cores", 5.0, 300.0, ""), []),
        ({"latency_ms": 4.9}, Cost("x, 2 cores", 5.0, None, ""), ["latency"]),
        ({"memory_mb": 299.9}, Cost("x, 2 cores", 5.0, 300.0, ""), ["memory"]),
        ({"size_mb": 0.0009}, None, ["model size"]),
        ({"memory_mb": 300.0}, Cost("x, 2 cores", 5.0, None, ""), ["memory"]),
        ({"latency_ms": 5.0}, None, ["latency"]),
        ({}, None, []),
    ],
)
def test_what_a_model_costs_is_bounded_and_what_was_not_measured_keeps_no_bound(
    bounds: dict[str, float], cost: Cost | None, names: list[str]
) -> None:
    policy = POLICY.model_copy(update={"cost": CostBounds(**bounds)})
    assert policy.cost.measures == bool({"latency_ms", "memory_mb"} & bounds.keys())
    evidence = Evidence(MODEL, GOOD, BASELINE, BETTER, {"roc_auc": {"a": 0.7}}, True, cost=cost)
    rules = applied_rules(policy.resolved(profile_of(BINARY)), evidence)
    assert [rule.name for rule in rules if not rule.holds] == names
    applied = [rule for rule in rules if rule.name in ("latency", "memory", "model size")]
    assert len(applied) == len(bounds)
    assert not any("latency" in rule.name and cost and "on x, 2 cores" not in rule.observed for rule in applied)


def _against(worse_by: float, error: float = 0.001) -> Comparison:
    return Comparison("log_loss", 0.48 + worse_by, 0.48, worse_by, worse_by + 2 * error, worse_by - 2 * error, error)


@pytest.mark.parametrize(
    ("slices", "broken"),
    [
        ({}, []),
        ({"a": 0.001, "b": -0.3}, []),
        ({"a": 0.006}, ["regression in a"]),  # 3.6 standard errors beyond 0.5 % of 0.48.
        ({"a": 0.0045, **{f"n{number}": 0.0 for number in range(30)}}, []),  # Once in 30 that is chance.
        ({"a": math.nan}, ["regression in a"]),
    ],
)
def test_regressions_that_are_shown_in_a_slice_refuse(slices: dict[str, float], broken: list[str]) -> None:
    policy = GatePolicy.model_validate({"regressions": {"metrics": ["brier"]}}).resolved(profile_of(BINARY))
    result = {name: _against(worse_by) for name, worse_by in slices.items()}
    evidence = Evidence(
        MODEL, GOOD, BASELINE, BETTER, {}, False, comparisons={"brier": _against(0)}, slice_comparisons=result
    )
    assert [rule.name for rule in applied_rules(policy, evidence) if not rule.holds] == broken
    assert not [rule for rule in applied_rules(POLICY, evidence) if rule.name.startswith("regression")], (
        "none by default"
    )
    assert ("regressions" in {rule.name for rule in applied_rules(policy, evidence)}) == (not broken), (
        "a rule that holds is told too"
    )


@pytest.mark.parametrize(
    ("metrics", "units", "broken"),
    [
        ([], {}, ["regressions"]),
        ([], {"a": 19}, ["regressions"]),
        (["brier"], {"a": 19}, []),
        ([], {"a": 19, "b": 20}, ["regression in b"]),
    ],
)
def test_what_has_few_units_shows_no_regression_and_looking_at_nothing_is_told(
    metrics: list[str], units: dict[str, int], broken: list[str]
) -> None:
    policy = GatePolicy.model_validate({"regressions": {"metrics": metrics}}).resolved(profile_of(BINARY))
    result = {name: replace(_against(0.1), units=number) for name, number in units.items()}
    comparisons = {"brier": _against(0)}
    evidence = Evidence(MODEL, GOOD, BASELINE, BETTER, {}, False, comparisons=comparisons, slice_comparisons=result)
    assert [rule.name for rule in applied_rules(policy, evidence) if not rule.holds] == broken


@pytest.mark.parametrize(
    ("suite", "fields", "broken"),
    [
        (NOT_TRIED, {}, []),
        (NOT_TRIED, {"require_integration": True}, ["integration"]),
        (Suite("pass", ()), {"require_integration": True}, []),
        (Suite("fail", ("schema: off",)), {}, ["integration"]),
        (Suite("pass", (), online="pass"), {"require_online": True}, []),
        (Suite("pass", ()), {"require_online": True}, ["integration online"]),
        (Suite("pass", (), ("online features: empty",), "pass"), {"require_online": True}, ["integration online"]),
        (NOT_TRIED, {"require_online": True}, ["integration online"]),
    ],
)
def test_the_integration_suite(suite: Suite, fields: dict[str, bool], broken: list[str]) -> None:
    policy = POLICY.model_copy(update=fields).resolved(profile_of(BINARY))
    evidence = Evidence(MODEL, GOOD, BASELINE, BETTER, {"roc_auc": {"a": 0.7}}, True, integration=suite)
    assert [rule.name for rule in applied_rules(policy, evidence) if not rule.holds] == broken
