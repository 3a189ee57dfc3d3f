"""The rules of the gate on their bounds, and the words that a person reads there."""

from dataclasses import replace
from typing import Any

import pytest

from gatehouse.evaluation.gate import (
    LEAST_UNITS,
    Evidence,
    FittedTestRows,
    Origins,
    RowCounts,
    Rule,
    applied_rules,
    verdict_of,
)
from gatehouse.evaluation.group_measures import Fairness, Group
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.tasks import BINARY
from tests.evaluation.test_gate import BASELINE, BETTER, GOOD, MODEL, POLICY, judged


def named(name: str, fields: dict[str, Any] | None = None, **changes: Any) -> Rule:
    """The rule of this name, on the good candidate after some changes."""
    policy = GatePolicy.model_validate({**POLICY.model_dump(mode="json", exclude_unset=True), **(fields or {})})
    evidence: dict[str, Any] = {"candidate": GOOD, "baseline": BASELINE, "comparison": BETTER}
    evidence |= {"slices": {"roc_auc": {"a": 0.7}}, "slices_requested": True}
    (rule,) = (
        r
        for r in applied_rules(policy.resolved(profile_of(BINARY)), Evidence(MODEL, **evidence | changes))
        if r.name == name
    )
    return rule


def test_an_alarm_is_silent_on_its_limit() -> None:
    on = named("leakage alarm roc_auc", {"leakage_alarm": {"roc_auc": GOOD["roc_auc"]}})
    assert on.holds and not named("leakage alarm roc_auc", {"leakage_alarm": {"roc_auc": 0.7}}).holds


@pytest.mark.parametrize(
    ("best", "worst", "error", "inconclusive"),
    [
        (0.002, 0.004, 0.01, True),  # The tolerance is the best bound: the candidate may be as bad, or better.
        (0.0021, 0.004, 0.01, False),
        (0.001, 0.004, 0.0001, False),  # These rows could show a regression of that size.
    ],
)
def test_a_tolerance_between_the_bounds_is_inconclusive_where_it_cannot_be_shown(
    best: float, worst: float, error: float, inconclusive: bool
) -> None:
    between = replace(BETTER, best_bound=best, worst_bound=worst, standard_error=error)
    rule = named("champion log_loss", {"champion": {"tolerance": 0.002}}, comparison=between)
    assert (rule.holds, rule.inconclusive) == (False, inconclusive)
    on = named("champion log_loss", {"champion": {"tolerance": worst}}, comparison=replace(between, standard_error=1.0))
    assert (on.holds, on.inconclusive) == (True, False) and "smallest" not in on.observed


def test_a_judged_slice_that_fails_is_not_also_told_to_hold() -> None:
    rules = [r.name for r in judged(POLICY, GOOD, BASELINE, BETTER, {"a": 0.7, "b": 0.1}) if r.name.startswith("slice")]
    assert rules == ["slice b"]
    assert named("slices").observed == "0.7000 at worst, in a"


def test_regressions_tell_what_had_too_few_units_and_take_no_spread_at_its_word() -> None:
    few = replace(BETTER, units=LEAST_UNITS - 1)
    slices = {"a": replace(BETTER, standard_error=0.001), "b": few, "c": few}
    rule = named("regressions", {"regressions": {}}, slice_comparisons=slices)
    assert rule.holds and rule.observed == "none; 2 of too few units"
    rule = named("regressions", {"regressions": {}}, slice_comparisons={"a": slices["a"]})
    assert rule.observed == "none"
    # All draws alike, and just as bad as is tolerated: nothing is shown.
    on = replace(BETTER, worse_by=0.005 * 0.5, champion=0.5, standard_error=0.0)
    assert named("regressions", {"regressions": {}}, slice_comparisons={"a": on}).holds
    past = replace(on, worse_by=0.00251)
    assert not named("regression in a", {"regressions": {}}, slice_comparisons={"a": past}).holds


@pytest.mark.parametrize("role", ["champion", "floor"])
def test_bounds_of_too_few_units_are_marked_and_decide_nothing(role: str) -> None:
    field = {"champion": "comparison", "floor": "floor"}[role]
    for units, holds in ((LEAST_UNITS - 1, False), (LEAST_UNITS, True)):
        rule = named(f"{role} log_loss", **{field: replace(BETTER, units=units)})
        assert (rule.holds, rule.inconclusive, "units mean nothing" in rule.observed) == (holds, not holds, not holds)


@pytest.mark.parametrize(("tolerance", "holds"), [(-0.003, True), (-0.0031, False), ("-0.5%", True), (0, True)])
def test_a_tolerance_below_zero_asks_for_an_improvement(tolerance: float | str, holds: bool) -> None:
    rule = named("champion log_loss", {"champion": {"metric": "log_loss", "tolerance": tolerance}})
    assert rule.holds == holds and ("better than" in rule.expected) == (tolerance != 0)


def test_only_rows_that_are_too_few_and_refuse_make_all_inconclusive() -> None:
    bad = replace(BETTER, worst_bound=0.5, best_bound=0.4)
    few, many = FittedTestRows({"candidate": 9}, 10, 1, "no rows"), FittedTestRows({"candidate": 1}, 10_000, 9_999)
    assert not named("champion log_loss", comparison=bad, seen=many).inconclusive
    rule = named("champion log_loss", comparison=bad, seen=few)
    assert (rule.holds, rule.inconclusive) == (False, True)
    assert not named("bar roc_auc", comparison=bad, seen=few).inconclusive, "what holds is not inconclusive"
    reported = {"rules": {"unseen rows": {"severity": "warn"}}}
    assert not named("champion log_loss", reported, comparison=bad, seen=few).inconclusive
    size = {"cost": {"size_mb": 0.0001}}
    assert not named("model size", size, seen=few).inconclusive, "no row of the test part is in it"
    assert str(FittedTestRows({}, 10, 10)) == "none of the 10 test rows is among them" and "the 1 others" in str(few)


@pytest.mark.parametrize(
    ("counted", "fields", "verdict", "counts", "holds"),
    [
        (RowCounts(100, rarer=20), {}, "refused", "100 and 20", True),
        (RowCounts(99, rarer=40), {}, "inconclusive", "99 and 40", False),
        (RowCounts(4, rarer=2), {}, "inconclusive", "4 and 2", False),
        (RowCounts(4, rarer=2), {"least_test_rows": 4, "least_rarer_rows": 2}, "refused", "4 and 2", True),
        (RowCounts(4, rarer=2), {"rules": {"test rows": {"severity": "warn"}}}, "refused", "4 and 2", False),
        (RowCounts(5_000, rarer=19), {}, "inconclusive", "5,000 and 19", False),
        (RowCounts(99), {}, "inconclusive", "99", False),
        (RowCounts(20, groups=True), {}, "refused", "20", True),
        (RowCounts(19, groups=True), {}, "inconclusive", "19", False),
    ],
)
def test_no_verdict_comes_of_fewer_rows_than_it_needs(
    counted: RowCounts, fields: dict[str, Any], verdict: str, counts: str, holds: bool
) -> None:
    fields = {"bars": {"roc_auc": {"min": 0.99}}, "champion": {}} | fields
    rule = named("test rows", fields, counted=counted)
    assert (rule.observed, rule.holds) == (counts, holds)
    policy = GatePolicy.model_validate(fields).resolved(profile_of(BINARY))
    evidence = Evidence(MODEL, GOOD, BASELINE, None, {}, False, counted=counted)
    assert verdict_of(applied_rules(policy, evidence)) == verdict


def test_rules_that_are_of_no_test_row_are_as_sure_with_few_of_them() -> None:
    fields = {"max_psi": 0.1, "max_training_age": "P1D", "complete_lineage": True, "require_integration": True}
    few, reported = FittedTestRows({"candidate": 9}, 10, 1), {}
    for name in ("drift", "training age", "lineage", "integration"):
        rule = named(name, fields, seen=few, origins=Origins(missing=("no splits",)))
        assert (rule.holds, rule.inconclusive) == (False, False), name
        reported[name] = rule.observed
    assert reported["drift"] == "not measured: no feature was measured"
    assert reported["training age"] == "not measured: the rows have no decision times"
    assert named("lineage", fields, origins=Origins()).observed == "all of them"


def test_one_group_keeps_no_bound_between_groups() -> None:
    groups = (Group("sex=a", 900, "", {}), Group("sex=b", 3, "3 rows", {}))
    fields = {"fairness": {"sex": {"demographic_parity_difference": 0.5}}}
    rule = named("fairness sex demographic_parity_difference", fields, fairness={"sex": Fairness("sex", groups, {})})
    assert (rule.holds, rule.inconclusive) == (False, True)
