"""The first stage of a run: it checks what the run needs, and claims the order of monitoring that the run executes."""

import os

from gatehouse.errors import MissingArtifactError
from gatehouse.monitoring.orders import Orders
from gatehouse.store.parameters import require_known
from gatehouse.store.run import RERUN, RUN_ID, require_span
from gatehouse.store.stage import Effects, StageModel, forcible_stages, stage
from gatehouse.store.store import ArtifactStore


class PrepareRequest(StageModel):
    """What a run needs; empty for nothing.

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
        writes="who trains for an order",
        why="Sees whether the configuration is published in this store; a repeat finds its own record.",
    ),
)
def prepare(request: PrepareRequest, store: ArtifactStore) -> PrepareResult:
    """Check configuration, forced stages and span, and record it if the run trains for an order of monitoring.

    Raises MissingArtifactError if a configuration reference is not in the store; ConfigurationError if `rerun` names a
    stage that does not exist or is never memoised; or for a wrong span; CauseTakenError if another run trains for the
    same order.
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
    if run and request.rerun:
        store.record(f"runs/{run}/{RERUN}", {"rerun": request.rerun})
    if not run or not request.model_name:
        return PrepareResult()
    orders = Orders(store, request.model_name)
    order = orders.of_run(run)
    if order is None:
        return PrepareResult()
    orders.take(order.cause)
    return PrepareResult(ordered=order.reasons)
