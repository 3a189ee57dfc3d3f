"""The tasks that end a run if a verdict is not `pass`.

A stage that judges always succeeds; the task that requires its verdict can fail. These tasks stand in one file, because
they are one function with another error and other words.
"""

from gatehouse.errors import ContractBreachError, LeakageError, SkewError
from gatehouse.store.stage import Effects, Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore

_REQUIRES = Effects(why="Ends the run where the verdict says no; costs nothing to repeat.")
_SMALL = Resources(cpu="500m", memory="512M", minutes=5)


class Requirement(StageModel):
    """A verdict with its reasons.

    Attributes:
        verdict: The verdict of a stage.
        reasons: The reasons that the stage gave.
        report: Reference of the artifact that explains it.
    """

    verdict: str
    reasons: tuple[str, ...] = ()
    report: str = ""


class Satisfied(StageModel):
    """The verdict was `pass`."""


def _explain(subject: str, request: Requirement) -> str:
    listed = "".join(f"\n  - {reason}" for reason in request.reasons)
    return f"{subject}: verdict {request.verdict!r}, expected 'pass'.{listed}\nThe report is in {request.report}."


@stage("require_contract", title="Require the contract", effects=_REQUIRES, resources=_SMALL)
def require_contract(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless the data keeps its contract. Raises ContractBreachError."""
    if request.verdict != "pass":
        raise ContractBreachError(_explain("The snapshot breaks its contract", request))
    return Satisfied()


@stage("require_no_leakage", title="Require no leakage", effects=_REQUIRES, resources=_SMALL)
def require_no_leakage(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless the training set holds only what was known at decision time. Raises LeakageError."""
    if request.verdict != "pass":
        raise LeakageError(_explain("The training set leaks the future or the label", request))
    return Satisfied()


@stage("require_no_skew", title="Require no skew", effects=_REQUIRES, resources=_SMALL)
def require_no_skew(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless the online store gives what the offline store gives. Raises SkewError."""
    if request.verdict != "pass":
        raise SkewError(_explain("The online store differs from the offline store", request))
    return Satisfied()
