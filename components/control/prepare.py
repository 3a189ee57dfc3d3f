"""What a run checks before its first stage: that its configuration is published, and which stages are forced."""

from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.artifacts.world import WORLD
from gatehouse.errors import ConfigurationError, MissingArtifactError


class PrepareRequest(StageModel):
    """The run's `force` parameter and the configuration references that its tasks will read."""

    force: str = ""
    configs: tuple[str, ...] = ()


class PrepareResult(StageModel):
    """Nonce by stage; only forced stages are in it."""

    nonces: dict[str, str]


@stage("prepare")
def prepare(request: PrepareRequest, store: ArtifactStore) -> PrepareResult:
    """Check the configuration references and split `force` into one nonce a stage.

    `force` is `stage[,stage…]` with an optional `@nonce`, e.g. `train,evaluate@2`: two runs with the same nonce force
    once where KFP's own cache is on.

    Raises:
        MissingArtifactError: if a configuration reference is not in the store.
        ConfigurationError: if `force` names a stage that does not exist or is never memoised.
    """
    missing = [config for config in request.configs if not store.exists(config)]
    if missing:
        raise MissingArtifactError(
            f"The store {store.address} does not hold the configuration that this spec was compiled with: "
            f"{', '.join(missing)}. Publish it with "
            f"`gatehouse compile --publish --store {store.address}`, then run again."
        )
    return PrepareResult(nonces=forced(request.force))


def forced(force: str) -> dict[str, str]:
    """Nonce by stage of a `force` parameter. Raises ConfigurationError for a stage that cannot be forced."""
    names, _, nonce = force.partition("@")
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = sorted(name for name, door in WORLD.items() if door.memo)
    wrong = [name for name in wanted if name not in known and name != "snapshot"]
    if wrong:
        raise ConfigurationError(
            f"--force names {', '.join(repr(name) for name in wrong)}: "
            f"expected stages among {', '.join(['snapshot', *known])}."
        )
    return dict.fromkeys(wanted, nonce or "forced")
