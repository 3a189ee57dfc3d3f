"""The stage that waits inside a run for a person's approval of a version, up to a deadline that a restart keeps."""

import os
import time
from datetime import datetime, timedelta

from pydantic import Field

from gatehouse.registry.approval import ApprovalError, approval_command, now, require_approval
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.naming import NAME, UnknownVersionError
from gatehouse.store.identity import operational
from gatehouse.store.records import create_record, read_record
from gatehouse.store.run import RUN_ID, TASK
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

SECONDS = 20.0
"""Between two looks at the ledger."""
_WAITS = Effects(
    reads="the ledger",
    writes="when the wait began",
    why="A person approves without any parameter changing; a repeat keeps the deadline.",
)


class ApprovalOverdueError(ApprovalError):
    """Nobody signed the verdict before the deadline."""

    permanent = True


class RejectedError(ApprovalError):
    """A person rejected the verdict."""

    permanent = True


class VerdictChangedError(ApprovalError):
    """The version was judged again while its verdict waited for a person."""

    permanent = True


class AwaitRequest(StageModel):
    """A version whose last verdict a person must approve, by default the one in staging; and how long that may take.

    `server` is the address of `gatehouse serve`, for the page that asks for the approval; empty for none.
    """

    model_name: str = Field(pattern=NAME)
    version: int = 0
    timeout_minutes: float = operational(1440.0, gt=0.0)
    server: str = operational("")


class AwaitResult(StageModel):
    """The version, the digest of its verdict, and who approved it until when; empty if the policy asks nobody."""

    version: int
    verdict: str
    by: str = ""
    until: str = ""


@stage("await_approval", title="Await approval", effects=_WAITS)
def await_approval(request: AwaitRequest, store: ArtifactStore) -> AwaitResult:
    """Wait until a person approves the last verdict on a version; at once if the policy asks for no person.

    The first attempt in a run notes version, verdict and time in the store. A later one waits for the same until the
    same deadline.

    Raises ApprovalOverdueError after the deadline, RejectedError, VerdictChangedError; UnknownVersionError if there is
    no such version.
    """
    name, ledger, run = request.model_name, Ledger(store, request.model_name), os.environ.get(RUN_ID, "")
    key = f"registry/{name}/waiting/{run}-{request.version}.json"
    noted = read_record(store.objects, key) if run else None
    if noted is None:
        state = ledger.state()
        version = state.version(request.version or state.staging)
        last = state.last_verdict(version.model) if version else None
        if version is None or last is None:
            missing = f"version {request.version}" if request.version else "a version in staging"
            raise UnknownVersionError(f"{name}: expected {missing}, found none of {len(state.versions)} versions.")
        noted = {"version": version.version, "verdict": last[1].digest, "at": now().isoformat()}
        if run and not create_record(store.objects, key, noted):
            noted = read_record(store.objects, key) or noted  # Another attempt was first.
    number, digest = noted["version"], noted["verdict"]
    deadline = datetime.fromisoformat(noted["at"]) + timedelta(minutes=request.timeout_minutes)
    announced, label = False, f"{name}:{number}"
    while True:
        state = ledger.state()
        version = state.version(number)
        last = state.last_verdict(version.model) if version else None
        assert version is not None and last is not None, "versions stay, each with a verdict"
        verdict = last[1]
        if verdict.digest != digest or version.ended:
            present = version.ended or f"{verdict.verdict}, {verdict.short}"
            raise VerdictChangedError(
                f"{label}: expected the verdict sha256-{digest[:12]}, found {present}. Run again."
            )
        signature = state.signature_on(digest)
        if signature and signature.kind == "rejected" and signature.approval:
            raise RejectedError(f"{label}: {signature.approval.by} rejected {verdict.short}: {signature.reason}")
        if verdict.approval == "automatic":
            return AwaitResult(version=number, verdict=digest)
        try:
            approval = require_approval(state, name, version, verdict, now())
            return AwaitResult(version=number, verdict=digest, by=approval.by, until=approval.until)
        except ApprovalError as error:
            left = (deadline - now()).total_seconds()
            if left <= 0:
                raise ApprovalOverdueError(f"Nobody approved by {deadline:%Y-%m-%dT%H:%M:%SZ}. {error}") from None
        if not announced and (task := TASK.get()):
            page = f"{request.server.rstrip('/')}/models/{name}/{number}, or with " if request.server else ""
            task.warn(
                f"{label} awaits approval of {verdict.short} until {deadline:%Y-%m-%dT%H:%M:%SZ}: {page}"
                f"{approval_command(label, verdict)} (or reject)"
            )
        announced = True
        time.sleep(min(SECONDS, left))
