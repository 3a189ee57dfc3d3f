"""The stages that end a run unless a verdict is `pass`. A stage that judges always succeeds; these can fail."""

from gatehouse.errors import ContractBreachError, GatehouseError, LeakageError, SkewError
from gatehouse.store.stage import Effects, Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore

_REQUIRES = Effects(why="Ends the run where the verdict says no; costs nothing to repeat.")
_SMALL = Resources(cpu="500m", memory="512M", minutes=5)


class Requirement(StageModel):
    """The verdict of a stage, its reasons, and the reference of the artifact that explains it."""

    verdict: str
    reasons: tuple[str, ...] = ()
    report: str = ""


class Satisfied(StageModel):
    """The verdict was `pass`."""


def _require(request: Requirement, error: type[GatehouseError], subject: str) -> Satisfied:
    if request.verdict != "pass":
        reasons = "".join(f"\n  - {reason}" for reason in request.reasons)
        raise error(
            f"{subject}: verdict {request.verdict!r}, expected 'pass'.{reasons}\nThe report is in {request.report}."
        )
    return Satisfied()


@stage("require_contract", title="Require the contract", effects=_REQUIRES, resources=_SMALL)
def require_contract(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless the data keeps its contract. Raises ContractBreachError."""
    return _require(request, ContractBreachError, "The snapshot breaks its contract")


@stage("require_no_leakage", title="Require no leakage", effects=_REQUIRES, resources=_SMALL)
def require_no_leakage(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless the training set holds only what was known at decision time. Raises LeakageError."""
    return _require(request, LeakageError, "The training set leaks the future or the label")


@stage("require_no_skew", title="Require no skew", effects=_REQUIRES, resources=_SMALL)
def require_no_skew(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless the online store gives what the offline store gives. Raises SkewError."""
    return _require(request, SkewError, "The online store differs from the offline store")
