"""The ledger as MLflow shows it: registered model, versions with lineage and tags, and the aliases.

The ledger is the truth, this is its projection: written after the ledger changed, from any state that a killed
projection left behind, and never read back into a decision.
"""

from typing import TYPE_CHECKING

from gatehouse.components.artifacts.objects.local import LocalObjects
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.registry.ledger import Ledger
from gatehouse.components.registry.state import ALIASES, ModelVersion, State, Verdict
from gatehouse.components.tracking.lineage import lineage_tags
from gatehouse.components.tracking.mlflow_client import Point, Tracking, log, short, tracking_of, warning_on_failure
from gatehouse.components.tracking.training import show_training

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion as ShownVersion

MODEL = "gatehouse.model"
_EVALUATION = "gatehouse.evaluation"


def project(store: ArtifactStore, model_name: str, state: State, label: str = "register:projection") -> None:
    """Bring MLflow to what the ledger says; MLflow is imported only where the ledger changed since the last time.

    What goes wrong with MLflow is a warning in the run record: the decision stands, and the next run tries again.

    Args:
        store: The store that holds ledger and models.
        model_name: Name under which models are registered.
        state: What the ledger says.
        label: Under which the run record notes it.
    """
    tracking = tracking_of(store)
    if tracking is None or state.size == 0 or tracking.is_shown(_marker(model_name, state.size)):
        return
    with warning_on_failure(store, label), tracking.client() as client:
        ledger = Ledger(store, model_name)
        state = ledger.state()
        told = next((size for size in range(state.size, 0, -1) if tracking.is_shown(_marker(model_name, size))), 0)
        while told < state.size:
            _show_verdicts(tracking, client, [verdict for number, verdict in state.verdicts if number > told])
            _show_versions(tracking, client, model_name, state)
            tracking.mark_shown(_marker(model_name, state.size))
            # Who went ahead meanwhile may have shown more, and this here have been written over it.
            told, state = state.size, ledger.state()


def _marker(model_name: str, size: int) -> str:
    return f"registry/{model_name}/{size:06d}"


def _show_verdicts(tracking: Tracking, client: "MlflowClient", verdicts: list[Verdict]) -> None:
    """Log each verdict's test metrics to the run that trained the candidate, refused candidates included."""
    for verdict in verdicts:
        run = show_training(tracking, client, Reference.parse(verdict.subject.model))
        shown = (run.data.tags.get(_EVALUATION), run.data.tags.get("gatehouse.verdict"))
        if shown == (verdict.evaluation, verdict.told):
            continue
        measured = _metrics(tracking.store, verdict.evaluation)
        tags = {"gatehouse.verdict": verdict.told, "gatehouse.reasons": "\n".join(verdict.reasons)}
        log(client, run, points=measured, tags=tags | {_EVALUATION: verdict.evaluation})


def _metrics(store: ArtifactStore, evaluation: str) -> list[Point]:
    metrics = store.read_json(evaluation, "metrics.json")
    return [(f"test_{name}", float(value), 0) for name, value in metrics["candidate"].items()]


def _show_versions(tracking: Tracking, client: "MlflowClient", model_name: str, state: State) -> None:
    """Create what is missing by tag, then set the tags and aliases that changed."""
    registered = {each.name for each in client.search_registered_models(f"name = '{model_name}'")}
    if state.versions and model_name not in registered:
        client.create_registered_model(model_name, tags={"gatehouse.store": tracking.store.address})
    shown = {each.tags.get(MODEL, ""): each for each in client.search_model_versions(f"name = '{model_name}'")}
    for version in state.versions:
        known = shown.get(version.model) or _create(tracking, client, model_name, version)
        shown[version.model] = known
        for name, value in _status_tags(state, version).items():
            if known.tags.get(name) != value:
                client.set_model_version_tag(model_name, str(known.version), name, value)
    if state.versions:
        _set_aliases(client, model_name, state, shown)


def _create(tracking: Tracking, client: "MlflowClient", model_name: str, version: ModelVersion) -> "ShownVersion":
    run = show_training(tracking, client, Reference.parse(version.model))
    return client.create_model_version(
        model_name,
        source=_source(tracking, version.model),
        run_id=str(run.info.run_id),
        tags=short(lineage_tags(version.lineage) | {MODEL: version.model}),
    )


def _source(tracking: Tracking, model: str) -> str:
    """The model's address; MLflow servers refuse local paths, so they get the identity under a scheme of its own."""
    if tracking.uri.startswith("http") and isinstance(tracking.store.objects, LocalObjects):
        return f"gatehouse://local/{model}"
    return tracking.store.address_of(model)


def _status_tags(state: State, version: ModelVersion) -> dict[str, str]:
    status = version.ended or " ".join(state.aliases_of(version.version)) or state.stage_of(version)
    return {
        "gatehouse.version": str(version.version),
        "gatehouse.status": status,
        _EVALUATION: version.evaluation,
    } | dict(version.tags)


def _set_aliases(client: "MlflowClient", model_name: str, state: State, shown: dict[str, "ShownVersion"]) -> None:
    present = {name: str(number) for name, number in client.get_registered_model(model_name).aliases.items()}
    for alias in ALIASES:
        version = state.version(state.holder(alias))
        wanted = str(shown[version.model].version) if version else ""
        if wanted and present.get(alias) != wanted:
            client.set_registered_model_alias(model_name, alias, wanted)
        elif not wanted and alias in present:
            client.delete_registered_model_alias(model_name, alias)
