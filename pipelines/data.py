"""The tasks that training, monitoring and materialization begin with: from the source to a training set."""

from dataclasses import dataclass
from typing import Any

from kfp.dsl import PipelineTask
from pydantic import BaseModel

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.stage import Stage
from gatehouse.components.features.component import (
    compute_features,
    freshness,
    previous_features,
    retrieve_training_set,
)
from gatehouse.components.features.stage import compute_features as compute_features_stage
from gatehouse.components.features.stage import retrieve_training_set as retrieve_stage
from gatehouse.components.snapshot.component import snapshot
from gatehouse.components.snapshot.sources.catalog import SourceSpec, parse_source
from gatehouse.components.snapshot.stage import snapshot as snapshot_stage
from gatehouse.components.validation.component import alert, validate
from gatehouse.components.validation.contract import parse_contract
from gatehouse.components.validation.stage import validate as validate_stage
from gatehouse.pipelines.governance import Tasks, entrust
from gatehouse.pipelines.prepare import prepare
from gatehouse.pipelines.require import require_contract
from gatehouse.project import Project


@dataclass(frozen=True)
class Run:
    """What every task of a run shares: the store, and the first task, which hands out the nonces of forced stages."""

    store: Any
    ready: PipelineTask

    def memoised(self, stage: Stage[Any, Any], name: str = "") -> dict[str, Any]:
        """The arguments that every memoised component has: store, code digest, and its nonce where it is forced."""
        return {"store": self.store, "code": stage.code(), "force": self.ready.outputs[name or stage.name]}


@dataclass(frozen=True)
class Data:
    """Outputs of the data tasks, as they will be at run time."""

    snapshot: Any
    as_of: Any
    feature_tables: Any
    training_set: Any


def begin(tasks: Tasks, project: Project, store: Any, force: Any) -> Run:
    """Add the first task: it checks that the configuration is published, and reads `force`."""
    configs = [str(config.reference) for config in project.configs()]
    return Run(store, tasks.add(prepare(store=store, force=force, configs=configs), "prepare", "Prepare the run"))


def add_data_tasks(tasks: Tasks, project: Project, run: Run, source: Any, window: Any, backfill: Any) -> Data:
    """Add snapshot, validation, features and the point-in-time join to the pipeline that is being built."""
    taken = tasks.add(
        snapshot(
            source=configuration_slice(_with_sensitive_columns(project)),
            location=source,
            window=window,
            backfill=backfill,
            **run.memoised(snapshot_stage, "snapshot"),
        ),
        "snapshot",
        "Snapshot the source",
    )
    if url_env := getattr(project.file.source, "url_env", ""):
        entrust(taken, "source-url", url_env)
    raw, as_of = taken.outputs["snapshot"], taken.outputs["as_of"]
    kept = _add_contract(tasks, project, run, raw)
    feature_tables, training_set = _add_features(tasks, project, run, raw, as_of, kept)
    return Data(raw, as_of, feature_tables, training_set)


def _add_contract(tasks: Tasks, project: Project, run: Run, raw: Any) -> PipelineTask:
    """Add the validation of the snapshot `raw`, whom it is told to, and the task that ends the run on a breach."""
    validated = tasks.add(
        validate(
            snapshot=raw,
            contract=str(project.contract.reference),
            baseline=project.file.baseline,
            statistics=configuration_slice(project.file.statistics),
            snapshots=project.file.snapshots,
            **run.memoised(validate_stage),
        ),
        "validate",
        "Validate against the contract",
    )
    verdict, reasons, report = (validated.outputs[name] for name in ("verdict", "reasons", "validation"))
    required = require_contract(store=run.store, verdict=verdict, reasons=reasons, report=report)
    if project.file.alerts != "never":
        # The webhook is told before the run is ended.
        required.after(_add_alert(tasks, project, run, validated, "validate", report))
    return tasks.add(required, "require_contract", "Require the contract")


def _add_alert(tasks: Tasks, project: Project, run: Run, judged: PipelineTask, stage: str, report: Any) -> PipelineTask:
    """Add the task that tells the webhook what a stage judged."""
    told = alert(
        store=run.store,
        project=project.name,
        pipeline=tasks.pipeline,
        stage=stage,
        verdict=judged.outputs["verdict"],
        reasons=judged.outputs["reasons"],
        report=report,
        when=project.file.alerts,
    )
    entrust(told, "alert-webhook", "GATEHOUSE_ALERT_WEBHOOK")
    return tasks.add(told, "alert", "Tell of the verdict" if stage == "validate" else f"Tell of the {stage}")


def _add_features(
    tasks: Tasks, project: Project, run: Run, raw: Any, as_of: Any, kept: PipelineTask
) -> tuple[Any, Any]:
    """Add the feature tables of the snapshot `raw` and the training set, once the contract is `kept`; gives both."""
    definitions = str(project.definitions.reference)
    earlier = tasks.add(
        previous_features(store=run.store, snapshot=raw, definitions=definitions, project=project.name).after(kept),
        "previous_features",
        "Find earlier feature tables",
    )
    computed = tasks.add(
        compute_features(
            snapshot=raw,
            definitions=definitions,
            project=project.name,
            parent=earlier.outputs["feature_tables"],
            **run.memoised(compute_features_stage),
        ),
        "compute_features",
        "Compute feature tables",
    )
    feature_tables = computed.outputs["feature_tables"]
    aged = tasks.add(
        freshness(
            store=run.store,
            feature_tables=feature_tables,
            definitions=definitions,
            as_of=as_of,
            against=project.file.features.freshness_against,
        ),
        "freshness",
        "Measure freshness",
    )
    if project.file.alerts != "never":
        _add_alert(tasks, project, run, aged, "freshness", feature_tables)
    retrieved = tasks.add(
        retrieve_training_set(
            snapshot=raw,
            feature_tables=feature_tables,
            definitions=definitions,
            service=project.file.features.service,
            as_of=as_of,
            **run.memoised(retrieve_stage),
        ),
        "retrieve_training_set",
        "Join features point-in-time",
    )
    return feature_tables, retrieved.outputs["training_set"]


def _with_sensitive_columns(project: Project) -> SourceSpec:
    """The source, with the columns that the contract calls sensitive, so that rejected rows do not show them."""
    contract = parse_contract(project.contract.files["contract.yaml"].decode())
    body = project.file.source.model_dump(mode="json")
    for name, table in body["tables"].items():
        table["sensitive"] = sorted({*table["sensitive"], *contract.sensitive(name, table["columns"])})
    return parse_source(body)


def configuration_slice(spec: BaseModel) -> str:
    """The canonical JSON of the configuration that one stage needs."""
    return canonical_json(spec.model_dump(mode="json"))
