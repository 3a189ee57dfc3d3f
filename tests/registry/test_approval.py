"""Approval: one verdict, for some days, by other eyes; a promotion checks it against clock and store again."""

import base64
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest

from gatehouse.errors import CorruptArtifactError
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry import approval
from gatehouse.registry.approval import ApprovalError, now
from gatehouse.registry.ledger import Ledger, Record, StaleVerdictError
from gatehouse.registry.promotion import promote
from gatehouse.registry.registration import WrongEvaluationError, verdict_on
from gatehouse.store.records import whoami
from tests.registry.gate import MANUAL, NAME, Gate

FOUR_EYES = GatePolicy(approval="manual", four_eyes=True)


@pytest.fixture
def waiting(gate: Gate) -> Gate:
    gate.run(gate.model(1), policy=MANUAL)
    return gate


def test_an_approval_is_signed_in_the_ledger_with_who_why_and_until_when(waiting: Gate) -> None:
    waiting.approve(reason="the slices hold", by="grace")
    record, verdict = Ledger(waiting.store, NAME).records()[-1], waiting.state.verdicts[0][1]
    assert record.kind == "approved" and record.approval is not None
    assert (record.approval.verdict, record.approval.by, record.reason) == (verdict.digest, "grace", "the slices hold")
    assert record.approval.until[:10] == (now() + timedelta(days=7)).strftime("%Y-%m-%d")
    assert record.provenance["by"] == "grace"
    assert promote(waiting.store, NAME, 0).champion == 1


def test_without_an_approval_nothing_is_promoted_but_to_shadow(waiting: Gate) -> None:
    for alias in ("champion", "canary"):
        with pytest.raises(ApprovalError, match=rf"{NAME}:1: .* found none"):
            promote(waiting.store, NAME, 1, to=alias)
    assert promote(waiting.store, NAME, 1, to="shadow").shadow == 1
    assert promote(waiting.store, NAME, 1, "an outage", override=True).champion == 1


def test_an_approval_expires_after_its_last_second(waiting: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting.approve(by="grace")
    state = waiting.state
    version, verdict = state.versions[0], state.verdicts[0][1]
    last = datetime.fromisoformat(state.approvals[0].approval.until)  # type: ignore[union-attr]  # It was approved.
    late = last + timedelta(seconds=1)
    assert approval.require_approval(state, NAME, version, verdict, last).by == "grace"
    assert approval.standing(state, verdict, last) == "awaiting promotion"
    assert approval.standing(state, verdict, late) == "awaiting approval"
    monkeypatch.setattr("gatehouse.registry.promotion.now", lambda: late)
    with pytest.raises(ApprovalError, match="one by grace that expired"):
        promote(waiting.store, NAME, 1)
    monkeypatch.setattr("gatehouse.registry.promotion.now", lambda: last)
    assert promote(waiting.store, NAME, 1).champion == 1


def test_an_approval_is_valid_for_one_verdict_against_one_champion(waiting: Gate) -> None:
    waiting.approve(by="grace")
    other = GatePolicy(approval="manual", approval_days=3)
    assert waiting.run(waiting.model(1), policy=other).decision == "awaiting approval"
    with pytest.raises(ApprovalError, match="earlier verdicts"):
        promote(waiting.store, NAME, 1)
    waiting.approve(by="grace")
    waiting.run(waiting.model(2))
    with pytest.raises(StaleVerdictError):
        promote(waiting.store, NAME, 1)


def test_the_last_signature_counts(waiting: Gate) -> None:
    waiting.approve(by="grace")
    waiting.approve(action="reject", reason="not in this week", by="linus")
    assert waiting.run(waiting.model(1), policy=MANUAL).decision == "rejected"
    with pytest.raises(ApprovalError, match="linus rejected it: not in this week"):
        promote(waiting.store, NAME, 1)
    waiting.approve(by="grace")
    assert promote(waiting.store, NAME, 1).champion == 1


def test_a_rejection_holds_whatever_the_policy_says_of_approval(gate: Gate) -> None:
    gate.run(gate.model(1))
    gate.run(gate.model(2), policy=MANUAL)
    for alias in ("shadow", "canary"):
        if alias == "canary":
            gate.approve(2)
        promote(gate.store, NAME, 2, to=alias)
    gate.approve(2, action="reject", reason="it hurts users")
    assert gate.state.aliases_of(2) == ("staging",), "it answers no one, and no one sees its answers"
    automatic = GatePolicy(least_rarer_rows=19)
    model = gate.model(3)
    gate.register(model, gate.evaluate(model, gate.model(1), policy=MANUAL))
    gate.approve(3, action="reject", reason="not this one")
    for alias in ("shadow", "canary", "champion"):
        with pytest.raises(ApprovalError, match="rejected it: not this one"):
            promote(gate.store, NAME, 3, to=alias)
    evaluation = gate.evaluate(model, gate.model(1), policy=automatic)
    judged = verdict_on(gate.store, model, evaluation, gate.state, now())
    records = iter([Record(kind="registered", version=3, verdict=judged)])
    Ledger(gate.store, NAME).extend(lambda state: next(records, None))  # A writer that ended before its promotion.
    gate.approve(3, action="reject", reason="nor under this policy")
    assert gate.register(model, evaluation).decision == "rejected"
    with pytest.raises(ApprovalError, match="rejected it: nor under this policy"):
        promote(gate.store, NAME, 3)
    assert promote(gate.store, NAME, 3, "an outage", override=True).champion == 3


def test_four_eyes_are_those_of_two_persons_however_a_name_is_written(gate: Gate) -> None:
    gate.run(gate.model(1), policy=FOUR_EYES)
    for by in ("Ada", " ada ", "\uff21DA"):
        with pytest.raises(ApprovalError, match="four eyes"):
            gate.approve(by=by)


def test_a_promotion_looks_again_whose_eyes_approved(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    model = gate.model(1)
    gate.run(model, policy=FOUR_EYES)
    gate.approve(by="grace")
    gate.store.append(f"provenance/{model}", {"by": "grace", "stage": "train"})  # She trained it too, as it turns out.
    with pytest.raises(ApprovalError, match=r"four eyes.*found grace"):
        promote(gate.store, NAME, 1)


@pytest.mark.parametrize("by", ["ada", "submitter"])
def test_under_four_eyes_neither_trainer_nor_submitter_approves(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setenv("GATEHOUSE_USER", "submitter")
    gate.run(gate.model(1), policy=FOUR_EYES)
    with pytest.raises(ApprovalError, match=rf"\(ada, submitter\), found {by}"):
        gate.approve(by=by)
    with pytest.raises(ApprovalError, match="four eyes"):
        promote(gate.store, NAME, 1, "I am sure", override=True, by=by)
    gate.approve(by=by, action="reject")
    gate.approve(by="grace")
    assert promote(gate.store, NAME, 1).champion == 1


@pytest.mark.parametrize("how", ["manual", "automatic"])
@pytest.mark.parametrize("verdict", ["pass", "inconclusive", "refused"])
def test_under_four_eyes_the_trainer_overrides_no_verdict(gate: Gate, how: str, verdict: str) -> None:
    policy, model = GatePolicy.model_validate({"approval": how, "four_eyes": True}), gate.model(1)
    gate.run(model, policy=MANUAL)
    gate.register(model, gate.evaluate(model, "", verdict == "pass", policy, verdict))
    if gate.state.champion:
        gate.run(gate.model(2))
    for to in ("canary", "champion"):
        with pytest.raises(ApprovalError, match="four eyes"):
            promote(gate.store, NAME, 1, "I am sure", override=True, by="ada", to=to)
    assert promote(gate.store, NAME, 1, "I looked", override=True, by="grace").champion == 1


def test_four_eyes_need_to_know_who_trained(gate: Gate) -> None:
    model = gate.model(1)
    gate.run(model, policy=FOUR_EYES)
    (key,) = gate.store.objects.list(f"provenance/{model}")
    gate.store.objects.local_path(key).unlink()
    with pytest.raises(ApprovalError, match="does not record who trained"):
        gate.approve(by="grace")


def test_a_person_gives_a_reason_and_names_a_version_that_passed(waiting: Gate) -> None:
    with pytest.raises(ApprovalError, match="reason"):
        waiting.approve(reason=" ")
    with pytest.raises(ApprovalError, match="found version 4"):
        waiting.approve(4)
    model = waiting.model(1)
    waiting.register(model, waiting.evaluate(model, "", good=False, policy=MANUAL))
    with pytest.raises(ApprovalError, match="refused: bar roc_auc"):
        waiting.approve(1)


def test_a_promotion_verifies_what_the_verdict_is_bound_to(waiting: Gate) -> None:
    waiting.approve(by="grace")
    blob = waiting.store.path(waiting.model(1), "model.json")
    blob.chmod(0o644)
    text = blob.read_text()
    blob.write_text(text.replace("1", "7"))
    with pytest.raises(CorruptArtifactError, match=r"model\.json"):
        promote(waiting.store, NAME, 1)
    blob.write_text(text)
    elsewhere = waiting.evaluate(waiting.model(2), "", policy=MANUAL)
    planted = waiting.state.verdicts[0][1].model_copy(update={"evaluation": elsewhere})
    records = iter([Record(kind="registered", version=1, verdict=planted)])
    Ledger(waiting.store, NAME).extend(lambda state: next(records, None))
    with pytest.raises(WrongEvaluationError, match=r"model: expected models/delays"):
        promote(waiting.store, NAME, 1)


def test_a_promotion_verifies_the_policy_of_the_verdict(waiting: Gate) -> None:
    verdict = waiting.state.verdicts[0][1]
    other = verdict.model_copy(update={"subject": verdict.subject.model_copy(update={"policy": "0" * 64})})
    records = iter([Record(kind="registered", version=1, verdict=other)])
    Ledger(waiting.store, NAME).extend(lambda state: next(records, None))
    with pytest.raises(WrongEvaluationError, match="policy: expected 0000"):
        promote(waiting.store, NAME, 1, to="shadow")


@pytest.mark.parametrize("word", ["approve", "reject"])
def test_a_word_signs_the_verdict_that_was_read(waiting: Gate, word: Literal["approve", "reject"]) -> None:
    read, model = waiting.verdict_digest(), waiting.model(1)
    looser = GatePolicy(approval="manual", inconclusive="approval")
    waiting.register(model, waiting.evaluate(model, "", policy=looser))
    for digest in (read, "sha256-", waiting.verdict_digest()[:15], waiting.state.verdicts[0][1].digest):
        with pytest.raises(ApprovalError, match=f"digest of its last verdict.*found {digest}"):
            waiting.approve(by="grace", action=word, digest=digest)
    assert waiting.state.approvals == ()
    waiting.approve(by="grace", action=word, digest=waiting.state.verdicts[-1][1].digest)
    assert len(waiting.state.approvals) == 1


def test_a_verdict_that_changes_while_it_is_signed_is_not_approved(
    waiting: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = waiting.model(1)

    def meanwhile() -> datetime:
        waiting.register(model, waiting.evaluate(model, "", policy=FOUR_EYES))
        return now()

    monkeypatch.setattr(approval, "now", meanwhile)
    with pytest.raises(ApprovalError, match="digest of its last verdict"):
        waiting.approve(by="grace")
    assert waiting.state.approvals == ()


def test_the_user_is_named_by_the_environment_then_by_the_service_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    body = base64.urlsafe_b64encode(json.dumps({"sub": "system:serviceaccount:ml:trainer"}).encode()).decode()
    token.write_text(f"x.{body.rstrip('=')}.y")
    monkeypatch.delenv("GATEHOUSE_USER", raising=False)
    own = whoami()
    monkeypatch.setattr("gatehouse.store.records._TOKEN", token)
    assert whoami() == "system:serviceaccount:ml:trainer" != own
    monkeypatch.setenv("GATEHOUSE_USER", "grace")
    assert whoami() == "grace"


def test_a_broken_rule_of_severity_approval_lets_a_person_decide_in_place_of_the_policy(gate: Gate) -> None:
    gate.run(gate.model(1))
    policy = GatePolicy(rules={"drift": {"severity": "approval"}})
    model = gate.model(2)
    asking = {"good": False, "verdict": "pass", "rule": "drift temp", "severity": "approval"}
    result = gate.register(model, gate.evaluate(model, gate.resolve(model, policy), policy=policy, **asking))
    assert result.decision == "awaiting approval" and "a person decides" in result.warnings[0]
    with pytest.raises(ApprovalError):
        promote(gate.store, NAME, 2)
    gate.approve(2)
    assert promote(gate.store, NAME, 2).champion == 2
