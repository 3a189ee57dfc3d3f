"""The rules of the gate on their bounds, and the words that a person reads there."""

from dataclasses import replace
from typing import Any

import pytest

from gatehouse.evaluation.gate import (
    LEAST_UNITS,
    Evidence,
    FittedTestRows,
    RowCounts,
    Rule,
    applied_rules,
    verdict_of,
)
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.tasks import BINARY
from tests.evaluation.test_gate import BASELINE, BETTER, GOOD, MODEL, POLICY


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
