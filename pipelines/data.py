"""The tasks that training, monitoring and materialization begin with: from the source to a training set."""

from dataclasses import dataclass
from typing import Any

from kfp.dsl import PipelineTask
from pydantic import BaseModel

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.features.component import compute_features, retrieve_training_set
from gatehouse.components.features.stage import compute_features as compute_features_stage
from gatehouse.components.features.stage import retrieve_training_set as retrieve_stage
from gatehouse.components.snapshot.component import snapshot
from gatehouse.components.snapshot.stage import ingest as ingest_stage
from gatehouse.components.validation.component import validate
from gatehouse.components.validation.stage import validate as validate_stage
from gatehouse.pipelines.governance import Tasks
from gatehouse.pipelines.prepare import prepare
from gatehouse.pipelines.require import require_contract
from gatehouse.project import Project


@dataclass(frozen=True)
class Data:
    """Outputs of the data tasks: the prepared run, and references as they will be at run time."""

    ready: PipelineTask
    snapshot: Any
    as_of: Any
    feature_tables: Any
    training_set: Any


def add_data_tasks(tasks: Tasks, project: Project, store: Any, source: Any, window: Any, force: Any) -> Data:
    """Add prepare, snapshot, validate, require, compute and retrieve to the pipeline that is being built."""
    file = project.file
    contract, definitions = str(project.contract.reference), str(project.definitions.reference)
    ready = tasks.add(prepare(store=store, force=force, configs=[contract, definitions]), "prepare", "Prepare the run")
    taken = tasks.add(
        snapshot(
            store=store,
            source=configuration_slice(file.source),
            location=source,
            window=window,
            code=ingest_stage.code(),
            force=ready.outputs["snapshot"],
        ),
        "snapshot",
        "Snapshot the source",
    )
    raw = taken.outputs["snapshot"]
    validated = tasks.add(
        validate(
            store=store,
            snapshot=raw,
            contract=contract,
            baseline="",
            code=validate_stage.code(),
            force=ready.outputs["validate"],
        ),
        "validate",
        "Validate against the contract",
    )
    kept = tasks.add(
        require_contract(
            store=store,
            verdict=validated.outputs["verdict"],
            reasons=validated.outputs["reasons"],
            report=validated.outputs["validation"],
        ),
        "require_contract",
        "Require the contract",
    )
    computed = tasks.add(
        compute_features(
            store=store,
            snapshot=raw,
            definitions=definitions,
            project=project.name,
            code=compute_features_stage.code(),
            force=ready.outputs["compute_features"],
        ).after(kept),
        "compute_features",
        "Compute feature tables",
    )
    retrieved = tasks.add(
        retrieve_training_set(
            store=store,
            snapshot=raw,
            feature_tables=computed.outputs["feature_tables"],
            definitions=definitions,
            service=file.features.service,
            as_of=taken.outputs["as_of"],
            code=retrieve_stage.code(),
            force=ready.outputs["retrieve_training_set"],
        ),
        "retrieve_training_set",
        "Join features point-in-time",
    )
    return Data(
        ready=ready,
        snapshot=raw,
        as_of=taken.outputs["as_of"],
        feature_tables=computed.outputs["feature_tables"],
        training_set=retrieved.outputs["training_set"],
    )


def configuration_slice(spec: BaseModel) -> str:
    """The canonical JSON of the configuration that one stage needs."""
    return canonical_json(spec.model_dump(mode="json"))
