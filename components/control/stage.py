"""The tasks that control a run: checks before its first stage, and tasks that end it if a verdict is not `pass`.

A stage that judges always succeeds; the task that requires its verdict can fail.
"""

import os
from collections.abc import Collection

from gatehouse.components.artifacts.declaration import Effects, Resources
from gatehouse.components.artifacts.run import RUN_ID
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.control.causes import Orders
from gatehouse.components.control.span import require_span
from gatehouse.components.operations.ending.outcome import run_outcome
from gatehouse.errors import (
    ConfigurationError,
    ContractBreachError,
    GatehouseError,
    LeakageError,
    MissingArtifactError,
    SkewError,
)

_REQUIRES = Effects(why="Ends the run where the verdict says no; costs nothing to repeat.")
_SMALL = Resources(cpu="500m", memory="512M", minutes=5)


class PrepareRequest(StageModel):
    """The run's `force` parameter, the stages that it may name, and the configuration that the tasks will read.

    With `cause`, the run trains a model for an order of monitoring, and records this. `since` and `until` limit the run
    to a time span.
    """

    force: str = ""
    stages: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    cause: str = ""
    model_name: str = ""
    since: str = ""
    until: str = ""


class PrepareResult(StageModel):
    """The nonce of each forced stage, by stage; and the reasons if monitoring ordered this run."""

    nonces: dict[str, str]
    ordered: tuple[str, ...] = ()


@stage(
    "prepare",
    title="Prepare the run",
    effects=Effects(
        reads="the store",
        writes="who trains for an order",
        why="Sees whether the configuration is published in this store; a repeat finds its own record.",
    ),
    resources=_SMALL,
)
def prepare(request: PrepareRequest, store: ArtifactStore) -> PrepareResult:
    """Check the configuration references, and split `force` into one nonce per stage.

    `force` is `stage[,stage…]` with an optional `@nonce`, e.g. `train,evaluate@2`. With KFP's cache, two runs with the
    same nonce run the stages only once.

    Raises:
        MissingArtifactError: if a configuration reference is not in the store.
        ConfigurationError: if `force` names a stage that does not exist or is never memoised; or if `since` or `until`
            is not a time with a zone, or their span is empty.
        CauseTakenError: if another run trains for the same cause.
    """
    missing = [config for config in request.configs if not store.exists(config)]
    if missing:
        raise MissingArtifactError(
            f"The store {store.address} does not hold the configuration that this spec was compiled with: "
            f"{', '.join(missing)}. Publish it with "
            f"`gatehouse compile --publish --store {store.address}`, then run again."
        )
    require_span({"since": request.since, "until": request.until})
    nonces = forced(request.force, request.stages)
    if not request.cause:
        return PrepareResult(nonces=nonces)
    orders = Orders(store, request.model_name)
    orders.take(request.cause)
    why = (each.reasons for each in orders.all() if each.cause == request.cause)
    return PrepareResult(nonces=nonces, ordered=next(why, ()))


def forced(force: str, stages: Collection[str]) -> dict[str, str]:
    """The nonce by stage of a `force` parameter.

    Args:
        force: The pipeline parameter.
        stages: The stages that can be forced.

    Raises:
        ConfigurationError: if it names another stage.
    """
    names, _, nonce = force.partition("@")
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    wrong = [name for name in wanted if name not in stages]
    if wrong:
        raise ConfigurationError(
            f"--force names {', '.join(repr(name) for name in wrong)}: "
            f"expected stages among {', '.join(sorted(stages))}."
        )
    return dict.fromkeys(wanted, nonce or "forced")


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
