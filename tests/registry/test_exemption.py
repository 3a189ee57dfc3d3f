"""Exemptions: one rule, one candidate, some days; applied at registration and checked again at promotion."""

from datetime import timedelta
from typing import Any

import pytest

from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.approval import ExemptionError, now
from gatehouse.registry.ledger import Exemption, Ledger, Record
from gatehouse.registry.promotion import promote
from tests.registry.gate import NAME, Gate

LONG = GatePolicy(approval="manual", approval_days=30)
OTHER = GatePolicy(leakage_alarm={"roc_auc": 0.9})


def _later(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    for module in ("stage", "promotion"):
        monkeypatch.setattr(f"gatehouse.registry.{module}.now", lambda: now() + timedelta(days))


@pytest.fixture
def refused(gate: Gate) -> str:
    model = gate.model(1)
    assert gate.run(model, good=False).decision == "refused"
    return model


def test_a_candidate_may_break_the_rule_that_it_was_exempted_from(
    gate: Gate, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        gate.exempt(refused)
    result = gate.run(refused, good=False)
    assert (result.decision, result.version, result.reasons) == ("approved", 1, ())
    (exemption,) = gate.state.exemptions
    assert (exemption.model, exemption.rule, exemption.by, exemption.reason) == (
        *(refused, "bar roc_auc"),
        *("grace", "a pilot"),
    )
    assert result.warnings == (f"exempted from bar roc_auc until {exemption.until} by grace: a pilot",)
    before = gate.state
    assert before.champion == 1 and before.verdicts[-1][1].exempted == (exemption,)
    _later(monkeypatch, 30)
    assert gate.run(refused, good=False).decision == "approved", "a champion stays when its exemption expires"
    assert gate.state == before


@pytest.mark.parametrize(("days", "later"), [(7, 7), (7, 8), (0, 0)])
def test_it_is_valid_to_the_end_of_its_last_day(
    gate: Gate, refused: str, monkeypatch: pytest.MonkeyPatch, days: int, later: int
) -> None:
    gate.exempt(refused, days=days)
    _later(monkeypatch, later)
    result = gate.run(refused, good=False)
    if later <= days:
        assert result.decision == "approved"
    else:
        assert (result.decision, result.warnings) == ("refused", ())
        assert result.reasons[0].endswith(f"; the exemption by grace has expired, on {gate.state.exemptions[0].until}")


def test_it_is_for_one_candidate_and_one_rule(gate: Gate, refused: str) -> None:
    gate.exempt(refused)
    result = gate.run(gate.model(2), good=False)
    assert result.decision == "refused"
    assert result.reasons[0].endswith(f"; the exemption by grace is for another candidate, {refused}")
    other = gate.model(3)
    gate.register(other, gate.evaluate(other, "", good=False, rule="model size"))
    exemption = Exemption(model=other, rule="bar log_loss", until="2999-01-01", by="grace", reason="-")
    records = iter([Record(kind="exempted", exemption=exemption)])
    Ledger(gate.store, NAME).extend(lambda state: next(records, None))
    result = gate.register(other, gate.evaluate(other, "", good=False, rule="model size"))
    assert (result.decision, result.reasons[0][-3:]) == ("refused", "0.6")


@pytest.mark.parametrize("rule", ["champion log_loss", "floor log_loss", "regression slice a", "bar roc_auc"])
def test_from_a_rule_that_compares_with_the_champion_it_is_for_that_champion(gate: Gate, rule: str) -> None:
    model = gate.model(1)
    gate.run(gate.model(2))
    gate.register(model, gate.evaluate(model, gate.model(2), good=False, rule=rule))
    gate.exempt(model, rule)
    gate.run(gate.model(3))
    later = gate.evaluate(model, gate.model(3), good=False, policy=OTHER, rule=rule)
    result = gate.register(model, later)
    if rule != "bar roc_auc":
        assert result.reasons[0].endswith(f"; the exemption by grace is for another champion, {gate.model(2)}")
        gate.exempt(model, rule)
        result = gate.register(model, later)
    assert result.decision == "approved"


@pytest.mark.parametrize("how", [{"reason": " "}, {"days": -1}, {"rule": "bar log_loss"}, {"model": 2}])
def test_it_needs_a_reason_a_day_to_come_and_a_rule_that_the_candidate_breaks(
    gate: Gate, refused: str, how: dict[str, Any]
) -> None:
    with pytest.raises(ExemptionError):
        gate.exempt(**{"model": refused} | how | ({"model": gate.model(2)} if "model" in how else {}))
    assert gate.state.exemptions == ()


def test_a_promotion_checks_it_by_the_clock_again(gate: Gate, refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.exempt(refused)
    gate.run(refused, good=False, policy=LONG)
    gate.approve(by="linus")
    _later(monkeypatch, 8)
    with pytest.raises(ExemptionError, match=f"{NAME}:1: .* by grace expired"):
        promote(gate.store, NAME, 1)
    assert promote(gate.store, NAME, 1, to="shadow").shadow == 1
    assert promote(gate.store, NAME, 1, "an outage", override=True).champion == 1


def test_another_exemption_makes_another_verdict_which_needs_another_approval(
    gate: Gate, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.run(refused, good=False, policy=LONG)
    gate.exempt(refused)
    gate.run(refused, good=False, policy=LONG)
    gate.approve(by="linus")
    assert gate.run(refused, good=False, policy=LONG).decision == "awaiting promotion"
    gate.exempt(refused, days=20, reason="a longer pilot")
    _later(monkeypatch, 8)
    with pytest.raises(ExemptionError, match="register it again"):
        promote(gate.store, NAME, 1)
    assert gate.run(refused, good=False, policy=LONG).decision == "awaiting approval"
    gate.approve(by="linus")
    assert promote(gate.store, NAME, 1).champion == 1
