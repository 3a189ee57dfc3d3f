"""The stages that end a run unless a verdict is `pass`. A stage that judges always succeeds; these can fail."""

from gatehouse.errors import ContractBreachError, GatehouseError, LeakageError, VerdictError
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

_REQUIRES = Effects(why="Ends the run where the verdict says no; costs nothing to repeat.")


class Requirement(StageModel):
    """The verdict of a stage, its reasons, the reference of the artifact that explains it, and what was judged."""

    verdict: str
    reasons: tuple[str, ...] = ()
    report: str = ""
    subject: str = ""


class Satisfied(StageModel):
    """The verdict was `pass`."""


def _require(request: Requirement, error: type[GatehouseError], subject: str) -> Satisfied:
    if request.verdict != "pass":
        reasons = "".join(f"\n  - {reason}" for reason in request.reasons)
        report = f"\nThe report is in {request.report}." if request.report else ""
        raise error(f"{subject}: verdict {request.verdict!r}, expected 'pass'.{reasons}{report}")
    return Satisfied()


@stage("require", title="Require the verdict", effects=_REQUIRES)
def require(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless a verdict is pass. Raises VerdictError."""
    return _require(request, VerdictError, request.subject or "A verdict")


@stage("require_contract", title="Require the contract", effects=_REQUIRES)
def require_contract(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless the data keeps its contract. Raises ContractBreachError."""
    return _require(request, ContractBreachError, "The snapshot breaks its contract")


@stage("require_no_leakage", title="Require no leakage", effects=_REQUIRES)
def require_no_leakage(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless the training set holds only what was known at decision time. Raises LeakageError."""
    return _require(request, LeakageError, "The training set leaks the future or the label")
