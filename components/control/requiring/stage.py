"""The tasks that end a run if a verdict is not `pass`, or if a stage failed.

A stage that judges always succeeds; the task that requires its verdict can fail. These tasks stand in one file, because
they are one function with another error and other words.
"""

import os

from gatehouse.components.artifacts.declaration import Effects, Resources
from gatehouse.components.artifacts.run import RUN_ID
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.operations.ending.outcome import run_outcome
from gatehouse.errors import ContractBreachError, GatehouseError, LeakageError, SkewError

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


class EndOfStages(StageModel):
    """The request to check the run that this process is part of; it needs no fields."""


class FailedStageError(GatehouseError):
    """A stage of the run failed, but KFP continued as if it had not."""

    permanent = True


@stage(
    "require_success",
    title="Require success of all stages",
    effects=Effects(reads="the run's record", why="Ends the run where a stage failed; costs nothing to repeat."),
    resources=_SMALL,
)
def require_success(request: EndOfStages, store: ArtifactStore) -> Satisfied:
    """End the run unless every stage succeeded: KFP sometimes reports success although a task failed.

    Raises:
        FailedStageError: if the last attempt of a stage failed, or started and was killed.
    """
    outcome = run_outcome(store, os.environ.get(RUN_ID, ""))
    if outcome.state != "succeeded":
        raise FailedStageError(f"Stage {outcome.stage} {outcome.state}: {outcome.error}: {outcome.message}")
    return Satisfied()
