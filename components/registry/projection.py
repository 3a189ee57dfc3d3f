"""Shows the ledger in MLflow: one version a registered model, with lineage as tags, and the aliases.

MLflow never decides anything: the projection is written from the ledger, only when the ledger has changed since the
last time, and a projection that was killed half-way is completed by the next one.
"""

from typing import TYPE_CHECKING

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.registry.ledger import Ledger, Record
from gatehouse.components.tracking.lineage import lineage
from gatehouse.components.tracking.training import MODEL_TAG, run_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

VERSION_TAG = "gatehouse.version"


def project(store: ArtifactStore, ledger: Ledger) -> bool:
    """Bring MLflow up to the ledger; returns False, without importing MLflow, where it is there already."""
    records = ledger.records()
    mark = f"registry/{ledger.name}/projected/{len(records):06d}.json"
    if not records or store.objects.size(mark) is not None:
        return False
    from gatehouse.components.tracking.mlflow_client import open_client

    client = open_client(store)
    registered = [record for record in records if record.event == "registered"]
    if registered:
        known = _known_versions(client, ledger.name)
        for record in registered:
            if record.version not in known:
                known[record.version] = _create_version(client, store, ledger.name, record)
        for alias, version in ledger.state().aliases:
            client.set_registered_model_alias(ledger.name, alias, known[version])
    store.record(mark, {"records": len(records)})
    return True


def _known_versions(client: "MlflowClient", name: str) -> dict[int, str]:
    """MLflow's version number by ours; creates the registered model where it is missing."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    found = client.search_model_versions(f"name='{name}'")
    return {int(item.tags[VERSION_TAG]): str(item.version) for item in found if VERSION_TAG in item.tags}


def _create_version(client: "MlflowClient", store: ArtifactStore, name: str, record: Record) -> str:
    made = client.create_model_version(
        name,
        source=store.address_of(record.model),
        run_id=run_of(store, record.model) or None,
        tags=_tags(store, record),
        description=f"Registered from {record.evaluation}.",
    )
    return str(made.version)


def _tags(store: ArtifactStore, record: Record) -> dict[str, str]:
    """What a version was made from, one tag a kind and name: everything that is needed to explain and rebuild it."""
    tags = {
        MODEL_TAG: record.model,
        VERSION_TAG: str(record.version),
        "gatehouse.evaluation": record.evaluation,
        "gatehouse.judged_against": record.judged_against or "none",
        "gatehouse.policy": record.policy,
        "gatehouse.run": record.run,
    }
    for parent in lineage(store, record.evaluation):
        reference = Reference.parse(parent)
        tags[f"gatehouse.lineage.{reference.kind}.{reference.name}"] = parent
    return tags
