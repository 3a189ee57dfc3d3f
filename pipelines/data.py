"""The tasks that the pipelines which read data begin with: from the source to a training set."""

from dataclasses import dataclass
from typing import Any

from kfp.dsl import PipelineTask
from pydantic import BaseModel

from gatehouse.components.alerting.stage import alert
from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.control.requiring.stage import require_contract
from gatehouse.components.features.computing.previous.stage import previous_features
from gatehouse.components.features.computing.stage import compute_features
from gatehouse.components.features.decisions.stage import retrieve_decisions
from gatehouse.components.features.freshness.stage import freshness
from gatehouse.components.features.point_in_time.stage import retrieve_training_set
from gatehouse.components.snapshot.stage import snapshot
from gatehouse.components.validation.contract import CONTRACT_FILE, published_contract
from gatehouse.components.validation.stage import validate
from gatehouse.pipelines.tasks import WEBHOOK, Tasks
from gatehouse.sensitive_columns import with_sensitive_columns


@dataclass(frozen=True)
class Data:
    """Outputs of the data tasks, as they will be at run time."""

    snapshot: Any
    as_of: Any
    feature_tables: Any
    training_set: Any
    validation: Any
    stale: Any


def add_data_tasks(tasks: Tasks, source: Any, window: Any, backfill: Any, *, labelled: bool = True) -> Data:
    """Add snapshot, validation, features and, where rows with labels are wanted, the training set to the pipeline."""
    project = tasks.project
    contract = published_contract(project.contract.files[CONTRACT_FILE].decode())
    taken = tasks.add(
        snapshot,
        source=configuration_slice(with_sensitive_columns(project.file.source, contract)),
        location=source,
        window=window,
        backfill=backfill,
    )
    if url_env := getattr(project.file.source, "url_env", ""):
        tasks.entrust(taken, "source-url", url_env)
    raw, as_of = taken.outputs["snapshot"], taken.outputs["as_of"]
    kept, validation = _add_contract(tasks, raw, taken.outputs["delivery"])
    feature_tables, stale = _add_features(tasks, raw, as_of, kept)
    training_set = _add_training_set(tasks, raw, as_of, feature_tables) if labelled else ""
    return Data(raw, as_of, feature_tables, training_set, validation, stale)


def _add_contract(tasks: Tasks, raw: Any, delivery: Any) -> tuple[PipelineTask, Any]:
    """Add the validation of the snapshot `raw`, the alert about it, and the task that ends the run on a breach.

    What the guards found in the delivery `delivery` is added to its record.

    Returns:
        The task that may end the run, and the validation.
    """
    file = tasks.project.file
    validated = tasks.add(
        validate,
        snapshot=raw,
        contract=str(tasks.project.contract.reference),
        baseline=file.baseline,
        statistics=configuration_slice(file.statistics),
        snapshots=file.snapshots,
        delivery=delivery,
    )
    verdict, reasons, report = (validated.outputs[name] for name in ("verdict", "reasons", "validation"))
    # The webhook is told before the run is ended.
    told = [add_alert(tasks, validated, "validate", report)] if file.alerts != "never" else []
    return tasks.add(require_contract, verdict=verdict, reasons=reasons, report=report).after(*told), report


def add_alert(tasks: Tasks, judged: PipelineTask, stage: str, report: Any) -> PipelineTask:
    """Add the task that tells the webhook what a stage judged."""
    told = tasks.add(
        alert,
        title="" if stage == "validate" else f"Tell of the {stage}",
        project=tasks.project.name,
        pipeline=tasks.pipeline,
        stage=stage,
        verdict=judged.outputs["verdict"],
        reasons=judged.outputs["reasons"],
        report=report,
        when=tasks.project.file.alerts,
        form=tasks.project.file.alert_form,
    )
    tasks.entrust(told, *WEBHOOK)
    return told


def _add_features(tasks: Tasks, raw: Any, as_of: Any, kept: PipelineTask) -> tuple[Any, Any]:
    """Add the feature tables of the snapshot `raw`, once the contract is `kept`; gives them, and why some are stale."""
    project = tasks.project
    definitions, settings = str(project.definitions.reference), project.file.features
    earlier = tasks.add(previous_features, snapshot=raw, definitions=definitions, project=project.name).after(kept)
    computed = tasks.add(
        compute_features,
        snapshot=raw,
        definitions=definitions,
        project=project.name,
        parent=earlier.outputs["feature_tables"],
    )
    feature_tables = computed.outputs["feature_tables"]
    aged = tasks.add(
        freshness,
        feature_tables=feature_tables,
        definitions=definitions,
        as_of=as_of,
        against=settings.freshness_against,
    )
    if project.file.alerts != "never":
        add_alert(tasks, aged, "freshness", feature_tables)
    return feature_tables, aged.outputs["reasons"]


def _add_training_set(tasks: Tasks, raw: Any, as_of: Any, feature_tables: Any) -> Any:
    retrieved = tasks.add(
        retrieve_training_set,
        snapshot=raw,
        feature_tables=feature_tables,
        definitions=str(tasks.project.definitions.reference),
        service=tasks.project.file.features.service,
        as_of=as_of,
    )
    return retrieved.outputs["training_set"]


def add_unlabelled_rows(tasks: Tasks, data: Data) -> Any:
    """Add the retrieval of decisions whose label is not known yet; gives their reference, or nothing."""
    retrieved = tasks.add(
        retrieve_decisions,
        title="Retrieve rows whose label is not known yet",
        snapshot=data.snapshot,
        feature_tables=data.feature_tables,
        definitions=str(tasks.project.definitions.reference),
        service=tasks.project.file.features.service,
        as_of=data.as_of,
        unlabelled=True,
    )
    return retrieved.outputs["decisions"]


def configuration_slice(spec: BaseModel) -> str:
    """The canonical JSON of the configuration that one stage needs."""
    return canonical_json(spec.model_dump(mode="json"))
