"""The stages that end a run early: where it lacks what it needs, and where a verdict is not `pass`.

A stage that judges always succeeds, because KFP shows no artifacts of a failed task. The next task requires its
verdict.
"""

import os
from collections.abc import Sequence

from gatehouse.errors import ContractBreachError, GatehouseError, LeakageError, MissingArtifactError, VerdictError
from gatehouse.monitoring.orders import Orders
from gatehouse.store.parameters import require_known
from gatehouse.store.run import RUN_ID, record_rerun, require_span
from gatehouse.store.stage import Effects, StageModel, forcible_stages, stage
from gatehouse.store.store import ArtifactStore

_REQUIRES = Effects(why="Ends the run where the verdict says no; costs nothing to repeat.")
_ERRORS: dict[str, type[GatehouseError]] = {"validations": ContractBreachError, "leakage": LeakageError}
"""The error by the kind of the artifact that explains a verdict."""


class PrepareRequest(StageModel):
    """The needs of a run; empty for nothing.

    `rerun` names stages that run whatever the memo holds; the tasks read the `configs`. `model_name` is
    given if monitoring may have ordered the run. `since` and `until` bound its time span.
    """

    rerun: str = ""
    configs: tuple[str, ...] = ()
    model_name: str = ""
    since: str = ""
    until: str = ""


class PrepareResult(StageModel):
    """The reasons if monitoring ordered this run."""

    ordered: tuple[str, ...] = ()


@stage(
    "prepare",
    title="Prepare the run",
    effects=Effects(
        reads="the store",
        writes="which stages run again, who trains for an order",
        why="Sees whether the configuration is published in this store; a repeat finds its own record.",
    ),
)
def prepare(request: PrepareRequest, store: ArtifactStore) -> PrepareResult:
    """Check configuration, forced stages and span; record the forced stages, and the run of an order of monitoring.

    Raises:
        MissingArtifactError: if a configuration reference is not in the store.
        ConfigurationError: if `rerun` names a stage that does not exist or is never memoised, or for a wrong span.
        CauseTakenError: if another run trains for the same order.
    """
    missing = [config for config in request.configs if not store.exists(config)]
    if missing:
        raise MissingArtifactError(
            f"The store {store.address} does not hold the configuration that this spec was compiled with: "
            f"{', '.join(missing)}. Publish it with "
            f"`gatehouse compile --publish --store {store.address}`, then run again."
        )
    require_span({"since": request.since, "until": request.until})
    require_known(request.rerun, forcible_stages() if request.rerun else ())
    run = os.environ.get(RUN_ID, "")
    record_rerun(store, run, request.rerun)
    orders = Orders(store, request.model_name)
    order = orders.of_run(run) if run and request.model_name else None
    if order is None:
        return PrepareResult()
    orders.claim(order.cause)
    return PrepareResult(ordered=order.reasons)


def require_verdict(
    subject: str, verdict: str, reasons: Sequence[str] = (), report: str = "", error: type[GatehouseError] | None = None
) -> None:
    """End the run unless a verdict is `pass`.

    Args:
        subject: The thing that was judged, for the message; empty for none.
        verdict: The verdict on it.
        reasons: The reasons, one line each.
        report: Reference of the artifact that explains the verdict.
        error: The error to raise. By default the kind of the report decides: ContractBreachError for a validation,
            LeakageError for a report on leakage, else VerdictError. The exit code of all three is 2.
    """
    if verdict == "pass":
        return
    listed = "".join(f"\n  - {reason}" for reason in reasons)
    place = f"\nThe report is in {report}." if report else ""
    kind = report.split("/")[-3:][0]
    raised = error or _ERRORS.get(kind, VerdictError)
    raise raised(f"{subject or 'A verdict'}: expected 'pass', found {verdict!r}.{listed}{place}")


class Requirement(StageModel):
    """The verdict of a stage, its reasons, the reference of the artifact that explains it, and the thing judged."""

    verdict: str
    reasons: tuple[str, ...] = ()
    report: str = ""
    subject: str = "A verdict"


class Satisfied(StageModel):
    """The verdict was `pass`."""


@stage("require", title="Require the verdict", effects=_REQUIRES)
def require(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless a verdict is `pass`, as `require_verdict` does."""
    require_verdict(request.subject, request.verdict, request.reasons, request.report)
    return Satisfied()


@stage("require_contract", title="Require the contract", effects=_REQUIRES)
def require_contract(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless the data keeps its contract. Raises ContractBreachError."""
    subject = "The snapshot breaks its contract"
    require_verdict(subject, request.verdict, request.reasons, request.report, ContractBreachError)
    return Satisfied()


@stage("require_no_leakage", title="Require no leakage", effects=_REQUIRES)
def require_no_leakage(request: Requirement, store: ArtifactStore) -> Satisfied:
    """End the run unless the training set holds only what was known at decision time. Raises LeakageError."""
    subject = "The training set leaks the future or the label"
    require_verdict(subject, request.verdict, request.reasons, request.report, LeakageError)
    return Satisfied()
