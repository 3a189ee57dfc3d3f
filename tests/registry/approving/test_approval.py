"""Approval: one verdict, for some days, by other eyes; and a promotion that holds it against clock and store again."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from gatehouse.errors import CorruptArtifactError
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.approving import approval
from gatehouse.registry.approving.approval import ApprovalError, now
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.promoting.acts import promote
from gatehouse.registry.registering.evaluated import WrongEvaluationError
from gatehouse.registry.state import LedgerError, Record, StaleVerdictError, fold
from gatehouse.store.records import whoami
from tests.registry.gate import MANUAL, NAME, Gate

FOUR_EYES = GatePolicy(approval="manual", four_eyes=True)


@pytest.fixture
def waiting(gate: Gate) -> Gate:
    """A gate with one candidate that waits for a person."""
    gate.run(gate.model(1), policy=MANUAL)
    return gate


def test_an_approval_is_signed_in_the_ledger_with_who_why_and_until_when(waiting: Gate) -> None:
    waiting.approve(reason="the slices hold", by="grace")
    record = Ledger(waiting.store, NAME).records()[-1]
    verdict = Ledger(waiting.store, NAME).state().verdicts[0][1]
    assert record.kind == "approved" and record.approval is not None
    assert (record.approval.verdict, record.approval.by, record.reason) == (verdict.digest, "grace", "the slices hold")
    assert record.approval.until[:10] == (now() + timedelta(days=7)).strftime("%Y-%m-%d")
    assert record.provenance["by"] == "grace"
    assert promote(waiting.store, NAME, 0).champion == 1


def test_without_an_approval_nothing_is_promoted_but_to_shadow(waiting: Gate) -> None:
    for alias in ("champion", "canary"):
        with pytest.raises(ApprovalError, match=rf"found none\. Approve it with `gatehouse models approve {NAME}:1"):
            promote(waiting.store, NAME, 1, to=alias)
    assert promote(waiting.store, NAME, 1, to="shadow").shadow == 1
    assert promote(waiting.store, NAME, 1, "an outage", override=True).champion == 1


def test_an_approval_expires(waiting: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting.approve(by="grace")
    for days, holds in ((8, False), (6, True)):
        monkeypatch.setattr("gatehouse.registry.promoting.acts.now", lambda d=days: now() + timedelta(d))
        if holds:
            assert promote(waiting.store, NAME, 1).champion == 1
        else:
            with pytest.raises(ApprovalError, match=r"one by grace that expired: it held for 7 days"):
                promote(waiting.store, NAME, 1)


def test_an_approval_holds_for_one_verdict(waiting: Gate) -> None:
    waiting.approve(by="grace")
    other = GatePolicy(approval="manual", approval_days=3)
    assert waiting.run(waiting.model(1), policy=other).decision == "awaiting approval"
    with pytest.raises(ApprovalError, match="only approvals or rejections of 1 earlier"):
        promote(waiting.store, NAME, 1)


def test_an_approved_verdict_goes_stale_when_the_champion_moves(waiting: Gate) -> None:
    waiting.approve(by="grace")
    waiting.run(waiting.model(2))
    with pytest.raises(StaleVerdictError):
        promote(waiting.store, NAME, 1)


def test_a_rejection_is_the_last_word_until_somebody_approves(waiting: Gate) -> None:
    waiting.approve(by="grace")
    waiting.approve(word="reject", reason="not in this week", by="linus")
    assert waiting.run(waiting.model(1), policy=MANUAL).decision == "rejected"
    with pytest.raises(ApprovalError, match="linus rejected it: not in this week"):
        promote(waiting.store, NAME, 1)
    waiting.approve(by="grace")
    assert promote(waiting.store, NAME, 1).champion == 1


@pytest.mark.parametrize("by", ["ada", "submitter"])
def test_four_eyes_are_not_those_of_who_trained_or_submitted(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setenv("GATEHOUSE_USER", "submitter")
    gate.run(gate.model(1), policy=FOUR_EYES)
    with pytest.raises(ApprovalError, match=rf"\(ada, submitter\), found {by}"):
        gate.approve(by=by)
    with pytest.raises(ApprovalError, match="four eyes"):
        promote(gate.store, NAME, 1, "I am sure", override=True, by=by)
    gate.approve(by=by, word="reject")
    gate.approve(by="grace")
    assert promote(gate.store, NAME, 1).champion == 1


@pytest.mark.parametrize("approval", ["manual", "automatic"])
@pytest.mark.parametrize("verdict", ["pass", "inconclusive", "refused"])
def test_no_override_under_four_eyes_is_by_who_trained_whatever_the_last_verdict(
    gate: Gate, approval: str, verdict: str
) -> None:
    policy, model = GatePolicy.model_validate({"approval": approval, "four_eyes": True}), gate.model(1)
    gate.run(model, policy=MANUAL)
    gate.register(model, gate.evaluate(model, "", verdict == "pass", policy, verdict), policy)
    if Ledger(gate.store, NAME).state().champion:
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
    with pytest.raises(ApprovalError, match="needs a reason"):
        waiting.approve(reason=" ")
    with pytest.raises(ApprovalError, match=r"one of the versions 1, found version 4"):
        waiting.approve(4)
    model = waiting.model(1)
    waiting.register(model, waiting.evaluate(model, "", good=False, policy=MANUAL), MANUAL)
    with pytest.raises(ApprovalError, match="refused: bar roc_auc"):
        waiting.approve(1)


def test_a_promotion_verifies_what_the_verdict_is_bound_to(waiting: Gate) -> None:
    waiting.approve(by="grace")
    model, ledger = waiting.model(1), Ledger(waiting.store, NAME)
    verdict = ledger.state().verdicts[0][1]
    elsewhere = waiting.evaluate(waiting.model(2), "", policy=MANUAL)
    planted = verdict.model_copy(update={"evaluation": elsewhere})
    seen: list[int] = []

    def plant(state: object) -> Record | None:
        seen.append(1)
        return Record(kind="registered", version=1, verdict=planted) if len(seen) == 1 else None

    blob = waiting.store.path(model, "model.json")
    blob.chmod(0o644)
    text = blob.read_text()
    blob.write_text(text.replace("1", "7"))
    with pytest.raises(CorruptArtifactError, match=r"model\.json"):
        promote(waiting.store, NAME, 1)
    blob.write_text(text)
    ledger.extend(plant)
    with pytest.raises(WrongEvaluationError, match=r"model: expected models/delays"):
        promote(waiting.store, NAME, 1)


def test_a_word_on_no_verdict_cannot_stand_in_a_ledger(waiting: Gate) -> None:
    records = Ledger(waiting.store, NAME).records()
    approval = {"verdict": "0" * 64, "by": "mallory", "until": "2099-01-01T00:00:00Z"}
    with pytest.raises(LedgerError, match="expected a verdict on version 1"):
        fold([*records, Record.model_validate({"kind": "approved", "version": 1, "approval": approval})])


def test_who_acts_is_what_the_environment_says_then_the_service_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: "object"
) -> None:
    import base64
    import json
    from pathlib import Path

    token = Path(str(tmp_path)) / "token"
    body = base64.urlsafe_b64encode(json.dumps({"sub": "system:serviceaccount:ml:trainer"}).encode()).decode()
    token.write_text(f"x.{body.rstrip('=')}.y")
    monkeypatch.delenv("GATEHOUSE_USER", raising=False)
    own = whoami()
    monkeypatch.setattr("gatehouse.store.records._TOKEN", token)
    assert whoami() == "system:serviceaccount:ml:trainer" != own
    monkeypatch.setenv("GATEHOUSE_USER", "grace")
    assert whoami() == "grace"


def test_a_verdict_that_is_given_anew_while_it_is_signed_is_not_approved(
    waiting: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign, model = approval._signed, waiting.model(1)

    def meanwhile(*asked: Any) -> Record:
        waiting.register(model, waiting.evaluate(model, "", policy=FOUR_EYES), FOUR_EYES)
        return sign(*asked)

    monkeypatch.setattr(approval, "_signed", meanwhile)
    with pytest.raises(ApprovalError, match="was judged again meanwhile"):
        waiting.approve(by="grace")
    assert Ledger(waiting.store, NAME).state().approvals == ()


def test_an_approval_holds_in_its_last_second(waiting: Gate) -> None:
    waiting.approve(by="grace")
    state = Ledger(waiting.store, NAME).state()
    version, verdict = state.versions[0], state.verdicts[0][1]
    last = datetime.fromisoformat(state.approvals[0].approval.until)  # type: ignore[union-attr]  # It was approved.
    assert approval.require_approval(state, NAME, version, verdict, last).by == "grace"
    assert approval.standing(state, verdict, last) == "awaiting promotion"
    late = last + timedelta(seconds=1)
    assert approval.standing(state, verdict, late) == "awaiting approval"
    with pytest.raises(ApprovalError, match="that expired"):
        approval.require_approval(state, NAME, version, verdict, late)
