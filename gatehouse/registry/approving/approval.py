"""Approval: a person signs one verdict with a name and a reason, for some days; makers may be excluded."""

from datetime import UTC, datetime, timedelta
from typing import Literal

from gatehouse.errors import GatehouseError
from gatehouse.registry.explaining.answers import trained_as
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

    Attributes:
        model_name: Name under which models are registered.
        version: The version; 0 for the one in staging.
        word: `approve` or `reject`.
        reason: The person's reason.
        by: The person; empty for the user of this process.
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

    Raises:
        ApprovalError: if there is no reason, no such version, or no verdict that passed; with `four_eyes` also if the
            approver trained or submitted the model, or if it is not known who did.
    """
    ledger, by = Ledger(store, request.model_name), request.by or whoami()
    if not request.reason.strip():
        raise ApprovalError(f"To {request.word} needs a reason: expected some words, found none. Give --reason.")
    state = ledger.state()
    version, verdict = judged(state, request.model_name, request.version or state.staging)
    signed = _signed(request, version, verdict, by)
    if request.word == "approve":
        require_other_eyes(store, ledger, version, verdict, by)

    def decide(current: State) -> Record | None:
        if judged(current, request.model_name, version.version)[1] != verdict:
            raise ApprovalError(
                f"{request.model_name}:{version.version} was judged again meanwhile: the verdict of "
                f"{verdict.evaluation} is no longer the latest one. Read the new verdict, then approve or reject it."
            )
        return None if current.word_on(verdict) == signed else signed

    ledger.extend(decide, by)
    assert signed.approval is not None
    decision: Literal["approved", "rejected"] = "approved" if request.word == "approve" else "rejected"
    return ApproveResult(
        decision=decision, version=version.version, verdict=verdict.digest, by=by, until=signed.approval.until
    )


def require_approval(state: State, model_name: str, version: ModelVersion, verdict: Verdict, now: datetime) -> Approval:
    """The approval of a verdict, if it is valid now.

    Raises:
        ApprovalError: if there is none, it was a rejection, or it has expired.
    """
    word, name = state.word_on(verdict), f"{model_name}:{version.version}"
    again = f'Approve it with `gatehouse models approve {name} --reason "…"`.'
    expected = f"{name}: expected an approval of the verdict of {verdict.evaluation}, found"
    if word is None or word.approval is None:
        others = sum(each.version == version.version for each in state.approvals)
        raise ApprovalError(
            f"{expected} {f'only approvals or rejections of {others} earlier verdicts' if others else 'none'}. {again}"
        )
    if word.kind == "rejected":
        raise ApprovalError(f"{expected} that {word.approval.by} rejected it: {word.reason} {again}")
    if _text(now) > word.approval.until:
        raise ApprovalError(
            f"{expected} one by {word.approval.by} that expired: it held for {verdict.approval_days} days, until "
            f"{word.approval.until}, and it is {_text(now)}. {again}"
        )
    return word.approval


def require_other_eyes(store: ArtifactStore, ledger: Ledger, version: ModelVersion, verdict: Verdict, by: str) -> None:
    """Under a policy with `four_eyes`, check that `by` neither trained nor submitted the model.

    Raises:
        ApprovalError: if `by` did, or if it is not known who did.
    """
    if not verdict.four_eyes:
        return
    name, made_by = f"{ledger.model_name}:{version.version}", makers_of(store, ledger, version.model)
    if not made_by:
        raise ApprovalError(
            f"{name}: the policy requires four eyes (another person has to approve), but the store does not record who "
            f"trained {version.model}: expected `by` in its provenance. Train it again."
        )
    if by in made_by:
        raise ApprovalError(
            f"{name}: the policy requires four eyes: expected an approval by somebody who neither trained nor "
            f"submitted it ({', '.join(sorted(made_by))}), found {by}. Ask another person."
        )


def makers_of(store: ArtifactStore, ledger: Ledger, model: str) -> set[str]:
    """Who trained a model (from provenance) and who submitted it (from the ledger); empty if one is unknown."""
    keys = (key for each in {model, trained_as(store, model)} for key in store.objects.list(f"provenance/{each}"))
    made = [read_record(store.objects, key) or {} for key in keys]
    entered = [each.provenance for each in ledger.records() if each.verdict and each.verdict.subject.model == model]
    trained, submitted = ({str(body["by"]) for body in bodies if body.get("by")} for bodies in (made, entered))
    return trained | submitted if trained and submitted else set()


def standing(state: State, verdict: Verdict, now: datetime) -> str:
    """The state of a verdict that waits for a person: `awaiting approval`, `awaiting promotion` or `rejected`."""
    word = state.word_on(verdict)
    if word is None or word.approval is None or (word.kind == "approved" and _text(now) > word.approval.until):
        return "awaiting approval"
    return "awaiting promotion" if word.kind == "approved" else "rejected"


def judged(state: State, model_name: str, number: int) -> tuple[ModelVersion, Verdict]:
    """A version and the last verdict on it.

    Raises:
        ApprovalError: if there is no such version, it is archived, or its last verdict is not `pass`.
    """
    version = state.version(number)
    if version is None:
        found = f"version {number}" if number else "no version in staging"
        known = ", ".join(str(each.version) for each in state.versions) or "none"
        raise ApprovalError(f"{model_name}: expected one of the versions {known}, found {found}.")
    last = state.last_verdict(version.model)
    assert last is not None, "a version has the verdict that it was registered with"
    if version.archived or not last[1].admits:
        found = "it is archived" if version.archived else f"{last[1].verdict}: {'; '.join(advised(last[1].reasons))}"
        raise ApprovalError(f"{model_name}:{number}: expected a version whose last verdict is pass, found {found}.")
    return version, last[1]


def now() -> datetime:
    """The time, to the second, in UTC."""
    return datetime.now(UTC).replace(microsecond=0)


def _signed(request: ApproveRequest, version: ModelVersion, verdict: Verdict, by: str) -> Record:
    approves = request.word == "approve"
    until = _text(now() + timedelta(days=verdict.approval_days)) if approves else ""
    return Record(
        kind="approved" if approves else "rejected",
        version=version.version,
        approval=Approval(verdict=verdict.digest, by=by, until=until),
        reason=request.reason,
    )


def _text(moment: datetime) -> str:
    return moment.strftime(_FORMAT)
