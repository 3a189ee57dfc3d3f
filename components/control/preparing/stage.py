"""The first task of a run: it checks what the run needs, and says which stages are forced."""

from collections.abc import Collection

from gatehouse.components.artifacts.declaration import Effects, Resources
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.control.causes import Orders
from gatehouse.components.control.span import require_span
from gatehouse.errors import ConfigurationError, MissingArtifactError


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
    resources=Resources(cpu="500m", memory="512M", minutes=5),
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
