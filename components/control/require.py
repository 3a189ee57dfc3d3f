"""What ends a run where a verdict says no. A stage that judges succeeds; the task that requires it does not."""

from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import ContractBreachError, LeakageError, SkewError


class Requirement(StageModel):
    """A verdict, the reasons that were given for it, and the reference of the report that explains them."""

    verdict: str
    reasons: tuple[str, ...] = ()
    report: str = ""


class Satisfied(StageModel):
    """The verdict was `pass`."""


def _explain(subject: str, request: Requirement) -> str:
    listed = "".join(f"\n  - {reason}" for reason in request.reasons)
    return f"{subject}: verdict {request.verdict!r}, expected 'pass'.{listed}\nThe report is in {request.report}."


@stage("require_contract")
def require_contract(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless the data keeps its contract. Raises ContractBreachError."""
    if request.verdict != "pass":
        raise ContractBreachError(_explain("The snapshot breaks its contract", request))
    return Satisfied()


@stage("require_no_leakage")
def require_no_leakage(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless the training set holds only what was known at decision time. Raises LeakageError."""
    if request.verdict != "pass":
        raise LeakageError(_explain("The training set leaks the future or the label", request))
    return Satisfied()


@stage("require_no_skew")
def require_no_skew(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless the online store gives what the offline store gives. Raises SkewError."""
    if request.verdict != "pass":
        raise SkewError(_explain("The online store differs from the offline store", request))
    return Satisfied()
