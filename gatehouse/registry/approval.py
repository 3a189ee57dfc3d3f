"""Decisions of a person at the gate: approvals of a verdict, and exemptions from a rule, each signed and for some days.

An approval signs one verdict with a name and a reason; makers may be excluded. An exemption allows one candidate to
break one rule; the ledger records who and why.
"""

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from gatehouse.errors import GatehouseError
from gatehouse.evaluation.gate import Rule
from gatehouse.registry.explanation import trained_as
from gatehouse.registry.ledger import Approval, Exemption, Ledger, ModelVersion, Record, State, Verdict, model_names
from gatehouse.reports.advice import advised
from gatehouse.store.records import read_record, whoami
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


class ApprovalError(GatehouseError):
    """This person cannot approve the verdict, or a version has no valid approval; the message says why."""


class ApproveResult(StageModel):
    """The signature: the version, the digest of its verdict, the person, and until when an approval is valid."""

    decision: Literal["approved", "rejected"]
    version: int
    verdict: str
    by: str
    until: str


def approve(
    store: ArtifactStore,
    model_name: str,
    version: int,
    action: str,
    reason: str,
    digest: str,
    by: str = "",
) -> ApproveResult:
    """Sign the last verdict on a version in the ledger, to allow or forbid its promotion.

    `action` is `approve` or `reject`. Version 0 is the one in staging. `digest` is that of the verdict which the person
    read, such as `sha256-3f9c…`, of at least 12 digits. `by` is the person; empty for who runs this.

    Raises ApprovalError if there is no reason, no such version, no verdict that passed, or if the last verdict has
    another digest; with `four_eyes` also if the approver trained or submitted the model, or if it is not known who did.
    """
    ledger, by, approves = Ledger(store, model_name), by or whoami(), action == "approve"
    read = digest.removeprefix("sha256-")
    decision: Literal["approved", "rejected"] = "approved" if approves else "rejected"
    if action not in ("approve", "reject") or not reason.strip():
        raise ApprovalError(
            f"Expected to approve or to reject, with a reason (--reason), found {action!r}, {reason!r}."
        )

    def judged(state: State, number: int) -> tuple[ModelVersion, Verdict]:
        chosen = state.version(number)
        if chosen is None:
            missing = f"version {number}" if number else "no version in staging"
            raise ApprovalError(f"{model_name}: expected one of {len(state.versions)} versions, found {missing}.")
        last = state.last_verdict(chosen.model)
        assert last is not None, "a version has the verdict that it was registered with"
        if chosen.archived or not last[1].admits:
            status = "archived" if chosen.archived else f"{last[1].verdict}: {'; '.join(advised(last[1].reasons))}"
            raise ApprovalError(f"{model_name}:{number}: expected a last verdict of pass, found {status}.")
        if not re.fullmatch(r"[0-9a-f]{12,64}", read) or not last[1].digest.startswith(read):
            name = f"{model_name}:{chosen.version}"
            raise ApprovalError(
                f"{name}: expected the digest of its last verdict, which is signed, found {digest or 'none'}. "
                f"Read the verdict with `gatehouse models show {name}`, and give its digest."
            )
        return chosen, last[1]

    state = ledger.state()
    signed, verdict = judged(state, version or state.staging)
    until = _text(now() + timedelta(days=verdict.approval_days)) if approves else ""
    signature = Record(
        kind=decision,
        version=signed.version,
        approval=Approval(verdict=verdict.digest, by=by, until=until),
        reason=reason,
    )
    if approves:
        require_other_eyes(store, ledger, signed, verdict, by)

    def decide(current: State) -> Record | None:
        judged(current, signed.version)  # It may have been judged again meanwhile.
        return None if current.signature_on(verdict.digest) == signature else signature

    ledger.extend(decide, by)
    return ApproveResult(decision=decision, version=signed.version, verdict=verdict.digest, by=by, until=until)


def approval_command(name: str, verdict: Verdict) -> str:
    """The command that approves a verdict on a version, NAME:2."""
    return f'`gatehouse models approve {name} --verdict {verdict.short} --reason "…"`'


def require_approval(state: State, model_name: str, version: ModelVersion, verdict: Verdict, now: datetime) -> Approval:
    """The approval of a verdict. Raises ApprovalError if there is none, it was a rejection, or it has expired."""
    signature, name = state.signature_on(verdict.digest), f"{model_name}:{version.version}"
    approval = signature.approval if signature else None
    if signature is None or approval is None:
        earlier = any(record.version == version.version for record in state.approvals)
        present = "signatures on earlier verdicts only" if earlier else "none"
    elif signature.kind == "rejected":
        present = f"that {approval.by} rejected it: {signature.reason}"
    elif _text(now) > approval.until:
        present = f"one by {approval.by} that expired at {approval.until}"
    else:
        return approval
    raise ApprovalError(
        f"{name}: expected an approval of the verdict of {verdict.evaluation}, found {present}. Approve it with "
        f"{approval_command(name, verdict)}."
    )


def require_other_eyes(store: ArtifactStore, ledger: Ledger, version: ModelVersion, verdict: Verdict, by: str) -> None:
    """Under `four_eyes`, raise ApprovalError if `by` trained or submitted the model, or it is unknown who did."""
    if not verdict.four_eyes:
        return
    name, model = f"{ledger.model_name}:{version.version}", version.model
    keys = (key for source in {model, trained_as(store, model)} for key in store.objects.list(f"provenance/{source}"))
    trained = {str(body["by"]) for key in keys if (body := read_record(store.objects, key) or {}).get("by")}
    submitted = {
        str(record.provenance["by"])
        for record in ledger.records()
        if record.verdict and record.verdict.subject.model == model and record.provenance.get("by")
    }
    if not trained or not submitted:
        raise ApprovalError(
            f"{name}: the policy requires four eyes, but the store does not record who trained {model}. Train it again."
        )
    if _person(by) in {_person(name) for name in trained | submitted}:
        raise ApprovalError(
            f"{name}: the policy requires four eyes: expected somebody who neither trained nor submitted it "
            f"({', '.join(sorted(trained | submitted))}), found {by}. Ask another person."
        )


def _person(name: str) -> str:
    """A name as it is compared: `Ann` and `ann ` are one person."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def standing(state: State, verdict: Verdict, now: datetime) -> str:
    """The state of a verdict that waits for a person: `awaiting approval`, `awaiting promotion` or `rejected`."""
    signature = state.signature_on(verdict.digest)
    if signature is not None and signature.kind == "rejected":
        return "rejected"
    valid = signature is not None and signature.approval is not None and _text(now) <= signature.approval.until
    return "awaiting promotion" if valid or verdict.approval == "automatic" else "awaiting approval"


def now() -> datetime:
    """The time, to the second, in UTC."""
    return datetime.now(UTC).replace(microsecond=0)


def _text(moment: datetime) -> str:
    return moment.strftime(_FORMAT)


_COMPARING = {"champion", "floor", "regression", "regressions"}
"""Prefixes of the rules that compare with the champion."""


class ExemptionError(GatehouseError):
    """An exemption cannot be given, or a version passed by an exemption that has expired."""


def exempt(
    store: ArtifactStore, model: str, rule: str, until: date, reason: str, by: str = ""
) -> tuple[str, Exemption]:
    """Allow a candidate to break a rule until a day, in UTC; the model name of the ledger, and the recorded exemption.

    The rule is named as in the verdict. The exemption applies at registration, and is checked again at promotion. `by`
    is the person; empty for who runs this.

    Raises ExemptionError if there is no reason, the day has passed, or the gate's last verdict on the candidate does
    not say that it breaks this rule.
    """
    if not reason.strip():
        raise ExemptionError("An exemption needs a reason: give --reason.")
    if until < now().date():
        raise ExemptionError(f"--until: expected today, {now().date()} in UTC, or later, found {until}.")
    ledgers = [Ledger(store, name) for name in model_names(store)]
    judged = ((ledger, last[1]) for ledger in ledgers if (last := ledger.state().last_verdict(model)))
    ledger, verdict = next(judged, (None, None))
    if ledger is None or verdict is None:
        raise ExemptionError(f"{model} was never judged by the gate. Run the training pipeline first.")
    broken = [entry.name for entry in rules_of(store, verdict.evaluation) if entry.refuses]
    broken += ["alignment"] if verdict.alignment else []
    if rule not in broken:
        raise ExemptionError(
            f"--rule: expected a rule that {model} breaks ({', '.join(broken) or 'none'}), found {rule!r}."
        )
    by = by or whoami()
    exemption = Exemption(
        model=model,
        rule=rule,
        until=str(until),
        by=by,
        reason=reason,
        champion=verdict.champion if rule.split()[0] in _COMPARING else "",
    )
    record = Record(kind="exempted", exemption=exemption)
    ledger.extend(lambda state: None if exemption in state.exemptions else record, by)
    return ledger.model_name, exemption


def rules_of(store: ArtifactStore, evaluation: str) -> tuple[Rule, ...]:
    """The rules as an evaluation applied them."""
    return tuple(Rule(**rule) for rule in store.read_json(evaluation, "verdict.json")["rules"])


def exemptions_from(
    rules: Sequence[Rule], model: str, champion: str, state: State, moment: datetime
) -> tuple[Exemption, ...]:
    """The exemptions valid at a moment for rules that this model breaks; for each rule the last one given."""
    valid = {
        exemption.rule: exemption
        for exemption in state.exemptions
        if exemption.model == model and exemption.champion in ("", champion) and _is_valid(exemption, moment)
    }
    return tuple(valid[name] for name in sorted({rule.name for rule in rules if rule.refuses} & valid.keys()))


def why_not_exempted(rule: str, model: str, state: State, moment: datetime) -> str:
    """Why an exemption from a broken rule is not applied, in words; empty if there is no exemption."""
    exemptions = [exemption for exemption in reversed(state.exemptions) if exemption.rule == rule]
    if not exemptions:
        return ""
    last = next((exemption for exemption in exemptions if exemption.model == model), exemptions[0])
    if last.model != model:
        return f"; the exemption by {last.by} is for another candidate, {last.model}"
    if not _is_valid(last, moment):
        return f"; the exemption by {last.by} has expired, on {last.until}"
    return f"; the exemption by {last.by} is for another champion, {last.champion}"


def require_exemptions(name: str, verdict: Verdict, moment: datetime) -> None:
    """Raise ExemptionError if an exemption on which a verdict depends has expired."""
    for exemption in verdict.exempted:
        if not _is_valid(exemption, moment):
            raise ExemptionError(
                f"{name}: the exemption from {exemption.rule!r} by {exemption.by} expired on {exemption.until}. Exempt "
                "it again with `gatehouse models exempt`, and register it again."
            )


def _is_valid(exemption: Exemption, moment: datetime) -> bool:
    return date.fromisoformat(exemption.until) >= moment.date()
