"""Approval: a person signs one verdict with a name and a reason, for some days; makers may be excluded."""

from datetime import UTC, datetime, timedelta
from typing import Literal

from gatehouse.errors import GatehouseError
from gatehouse.registry.answers import trained_as
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.state import Approval, ModelVersion, Record, State, Verdict
from gatehouse.reports.advice import advised
from gatehouse.store.records import read_record, whoami
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


class ApprovalError(GatehouseError):
    """This person cannot approve the verdict, or a version has no valid approval; the message says why."""


class ApproveRequest(StageModel):
    """A person's approval or rejection of the last verdict on a version.

    Version 0 is the one in staging. `by` is the person; empty for the user of this process.
    """

    model_name: str
    version: int = 0
    word: Literal["approve", "reject"] = "approve"
    reason: str
    by: str = ""


class ApproveResult(StageModel):
    """The signature: the version, the digest of its verdict, the person, and until when an approval is valid."""

    decision: Literal["approved", "rejected"]
    version: int
    verdict: str
    by: str
    until: str


def approve(request: ApproveRequest, store: ArtifactStore) -> ApproveResult:
    """Sign the last verdict on a version in the ledger, to allow or forbid its promotion.

    Raises ApprovalError if there is no reason, no such version, or no verdict that passed; with `four_eyes` also if the
    approver trained or submitted the model, or if it is not known who did.
    """
    ledger, by, approves = Ledger(store, request.model_name), request.by or whoami(), request.word == "approve"
    if not request.reason.strip():
        raise ApprovalError(f"To {request.word} needs a reason: give --reason.")

    def judged(state: State, number: int) -> tuple[ModelVersion, Verdict]:
        version = state.version(number)
        if version is None:
            missing = f"version {number}" if number else "no version in staging"
            raise ApprovalError(
                f"{request.model_name}: expected one of {len(state.versions)} versions, found {missing}."
            )
        last = state.last_verdict(version.model)
        assert last is not None, "a version has the verdict that it was registered with"
        if version.archived or not last[1].admits:
            status = "archived" if version.archived else f"{last[1].verdict}: {'; '.join(advised(last[1].reasons))}"
            raise ApprovalError(f"{request.model_name}:{number}: expected a last verdict of pass, found {status}.")
        return version, last[1]

    state = ledger.state()
    version, verdict = judged(state, request.version or state.staging)
    until = _text(now() + timedelta(days=verdict.approval_days)) if approves else ""
    decision: Literal["approved", "rejected"] = "approved" if approves else "rejected"
    signature = Record(
        kind=decision,
        version=version.version,
        approval=Approval(verdict=verdict.digest, by=by, until=until),
        reason=request.reason,
    )
    if approves:
        require_other_eyes(store, ledger, version, verdict, by)

    def decide(current: State) -> Record | None:
        if judged(current, version.version)[1] != verdict:
            raise ApprovalError(
                f"{request.model_name}:{version.version} was judged again meanwhile. Read the new verdict first."
            )
        return None if current.signature_on(verdict.digest) == signature else signature

    ledger.extend(decide, by)
    return ApproveResult(decision=decision, version=version.version, verdict=verdict.digest, by=by, until=until)


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
        f'`gatehouse models approve {name} --reason "…"`.'
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
    if by in trained | submitted:
        raise ApprovalError(
            f"{name}: the policy requires four eyes: expected somebody who neither trained nor submitted it "
            f"({', '.join(sorted(trained | submitted))}), found {by}. Ask another person."
        )


def standing(state: State, verdict: Verdict, now: datetime) -> str:
    """The state of a verdict that waits for a person: `awaiting approval`, `awaiting promotion` or `rejected`."""
    signature = state.signature_on(verdict.digest)
    if signature is None or signature.approval is None:
        return "awaiting approval"
    if signature.kind == "rejected":
        return "rejected"
    return "awaiting approval" if _text(now) > signature.approval.until else "awaiting promotion"


def now() -> datetime:
    """The time, to the second, in UTC."""
    return datetime.now(UTC).replace(microsecond=0)


def _text(moment: datetime) -> str:
    return moment.strftime(_FORMAT)
