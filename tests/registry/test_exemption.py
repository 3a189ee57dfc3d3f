"""Exemptions: one rule, one candidate, some days; applied at registration and held again at promotion."""

from datetime import timedelta
from typing import Any

import pytest

from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.approval import now
from gatehouse.registry.exemption import ExemptionError
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.promotion import promote
from gatehouse.registry.state import Exemption, Record
from tests.registry.gate import MANUAL, NAME, Gate

LONG = GatePolicy(approval="manual", approval_days=30)
OTHER = GatePolicy(leakage_alarm={"roc_auc": 0.9})


def _later(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    for module in ("stage", "promotion"):
        monkeypatch.setattr(f"gatehouse.registry.{module}.now", lambda: now() + timedelta(days))


@pytest.fixture
def refused(gate: Gate) -> str:
    """A candidate that breaks a rule."""
    model = gate.model(1)
    assert gate.run(model, good=False).decision == "refused"
    return model


def test_a_candidate_may_break_the_rule_that_it_was_exempted_from(gate: Gate, refused: str) -> None:
    gate.exempt(refused)
    result = gate.run(refused, good=False)
    assert (result.decision, result.version, result.reasons) == ("approved", 1, ())
    (given,) = gate.state.exemptions
    assert (given.model, given.rule, given.by, given.reason) == (refused, "bar roc_auc", "grace", "a pilot")
    assert result.warnings == (f"exempted from bar roc_auc until {given.until} by grace: a pilot",)
    assert gate.state.last_verdict(refused)[1].exempted == (given,)  # type: ignore[index]  # It was judged.


def test_the_same_exemption_is_recorded_once_and_registering_again_writes_nothing(gate: Gate, refused: str) -> None:
    gate.exempt(refused)
    gate.exempt(refused)
    gate.run(refused, good=False)
    before = gate.state
    assert len(before.exemptions) == 1
    gate.run(refused, good=False)
    assert gate.state == before


@pytest.mark.parametrize("days", [7, 8])
def test_it_holds_to_the_end_of_its_last_day(
    gate: Gate, refused: str, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    gate.exempt(refused)
    until = gate.state.exemptions[0].until
    _later(monkeypatch, days)
    result = gate.run(refused, good=False)
    if days == 7:
        assert result.decision == "approved"
    else:
        assert (result.decision, result.warnings) == ("refused", ())
        assert result.reasons[0].endswith(f"found 0.6; the exemption by grace has expired, on {until}")


def test_it_is_for_one_candidate(gate: Gate, refused: str) -> None:
    gate.exempt(refused)
    result = gate.run(gate.model(2), good=False)
    assert result.decision == "refused"
    assert result.reasons[0].endswith(f"; the exemption by grace is for another candidate, {refused}")


def test_it_is_for_one_rule(gate: Gate, refused: str) -> None:
    other = Exemption(model=refused, rule="bar log_loss", until="2999-01-01", by="grace", reason="-")
    Ledger(gate.store, NAME).extend(
        lambda state: None if state.exemptions else Record(kind="exempted", exemption=other)
    )
    result = gate.run(refused, good=False)
    assert (result.decision, result.reasons[0][-3:]) == ("refused", "0.6")


@pytest.mark.parametrize("rule", ["champion log_loss", "improvement log_loss", "regression slice a", "bar roc_auc"])
def test_from_a_rule_that_compares_with_the_champion_it_is_for_that_champion(gate: Gate, rule: str) -> None:
    model = gate.model(1)
    gate.run(gate.model(2))
    gate.register(model, gate.evaluate(model, gate.model(2), good=False, rule=rule))
    gate.exempt(model, rule)
    gate.run(gate.model(3))
    later = gate.evaluate(model, gate.model(3), good=False, policy=OTHER, rule=rule)
    result = gate.register(model, later, OTHER)
    if rule == "bar roc_auc":
        assert result.decision == "approved"
        return
    assert result.reasons[0].endswith(f"; the exemption by grace is for another champion, {gate.model(2)}")
    gate.exempt(model, rule)
    assert gate.register(model, later, OTHER).decision == "approved"


@pytest.mark.parametrize("how", [{"reason": " "}, {"days": -1}, {"rule": "bar log_loss"}, {"model": 2}])
def test_it_needs_a_reason_a_day_to_come_and_a_rule_that_the_candidate_breaks(
    gate: Gate, refused: str, how: dict[str, Any]
) -> None:
    model = gate.model(how.pop("model", 1))
    with pytest.raises(ExemptionError):
        gate.exempt(model, **how)


def test_a_promotion_holds_it_against_the_clock_again(
    gate: Gate, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.run(refused, good=False, policy=MANUAL)
    gate.exempt(refused)
    assert gate.run(refused, good=False, policy=MANUAL).decision == "awaiting approval"
    gate.approve(by="linus")
    _later(monkeypatch, 8)
    monkeypatch.setattr("gatehouse.registry.promotion.require_approval", lambda *_: None)
    with pytest.raises(ExemptionError, match=rf"{NAME}:1: .* by grace expired"):
        promote(gate.store, NAME, 1)
    assert promote(gate.store, NAME, 1, to="shadow").shadow == 1
    assert promote(gate.store, NAME, 1, "an outage", override=True).champion == 1


def test_a_later_exemption_does_not_prolong_the_one_that_an_approver_signed(
    gate: Gate, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.run(refused, good=False, policy=LONG)
    gate.exempt(refused)
    gate.run(refused, good=False, policy=LONG)
    gate.approve(by="linus")
    gate.exempt(refused, days=20, reason="a longer pilot")
    _later(monkeypatch, 8)
    with pytest.raises(ExemptionError, match="register it again"):
        promote(gate.store, NAME, 1)
    assert gate.run(refused, good=False, policy=LONG).decision == "awaiting approval"
    gate.approve(by="linus")
    assert promote(gate.store, NAME, 1).champion == 1


def test_what_was_promoted_with_it_stays_when_it_expires(
    gate: Gate, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.exempt(refused)
    gate.run(refused, good=False)
    before = gate.state
    _later(monkeypatch, 30)
    assert gate.run(refused, good=False).decision == "approved"
    assert gate.state == before and before.champion == 1


def test_another_exemption_makes_another_verdict_which_needs_another_approval(gate: Gate, refused: str) -> None:
    gate.run(refused, good=False, policy=MANUAL)
    gate.exempt(refused)
    gate.run(refused, good=False, policy=MANUAL)
    gate.approve(by="linus")
    assert gate.run(refused, good=False, policy=MANUAL).decision == "awaiting promotion"
    gate.exempt(refused, days=20, reason="a longer pilot")
    assert gate.run(refused, good=False, policy=MANUAL).decision == "awaiting approval"


def test_its_last_day_may_be_today_and_of_another_rule_nobody_is_told(gate: Gate, refused: str) -> None:
    gate.exempt(refused, days=0)
    assert gate.run(refused, good=False).decision == "approved"
    other = gate.model(2)
    evaluation = gate.evaluate(other, gate.resolve(other), good=False, rule="model size")
    (reason,) = gate.register(other, evaluation).reasons
    assert "exemption" not in reason
