"""The stage that finds the champion and its training data."""

from gatehouse.errors import GatehouseError
from gatehouse.registry.ledger import SEES_CHAMPIONS, Ledger
from gatehouse.store.reference import Reference
from gatehouse.store.stage import Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore


class ChampionRequest(StageModel):
    """The model whose champion is wanted.

    Attributes:
        model_name: Name under which models are registered.
    """

    model_name: str


class ChampionResult(StageModel):
    """The champion, its version number, its training data, its evaluation at the gate, and its probes, if any.

    `registered` is when it was registered, in UTC; empty if the ledger does not say.
    """

    model: str
    version: int
    training_set: str
    split: str
    evaluation: str
    robustness: str
    registered: str


class NoChampionError(GatehouseError):
    """A model has no champion yet."""


@stage(
    "champion",
    title="Find the champion",
    effects=SEES_CHAMPIONS,
    resources=Resources(cpu="500m", memory="1G", minutes=5),
)
def champion(request: ChampionRequest, store: ArtifactStore) -> ChampionResult:
    """Find the champion and its training data.

    Raises:
        NoChampionError: if there is none.
    """
    ledger = Ledger(store, request.model_name)
    state = ledger.state()
    version = state.version(state.champion)
    if version is None:
        raise NoChampionError(
            f"{request.model_name} has no champion in {store.address}: expected one that the training pipeline "
            f"registered, found {len(state.versions)} versions. Run the training pipeline, or promote a version."
        )
    inputs = store.manifest(version.model).derived_from
    return ChampionResult(
        model=version.model,
        version=version.version,
        training_set=inputs["training_set"],
        split=inputs["split"],
        evaluation=version.evaluation,
        robustness=_probes(store, version.model),
        registered=str(ledger.records()[version.registered_at - 1].provenance.get("at", "")),
    )


def _probes(store: ArtifactStore, model: str) -> str:
    """The probes of a model; empty if there are none."""
    name = Reference.parse(model).name
    of_name = (each for each in store.references("robustness") if each.name == name)
    return next((str(each) for each in of_name if store.manifest(each).derived_from.get("model") == model), "")
