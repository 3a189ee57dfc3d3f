"""The tasks that the pipelines which read data begin with: from the source to a training set."""

from dataclasses import dataclass
from typing import Any

from gatehouse.data.snapshot.stage import snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.data.validation.contract import CONTRACT_FILE, published_contract
from gatehouse.data.validation.stage import validate
from gatehouse.features.computing.previous.stage import previous_features
from gatehouse.features.computing.stage import compute_features
from gatehouse.features.decisions_stage import retrieve_decisions
from gatehouse.features.freshness_stage import freshness
from gatehouse.features.leakage.stage import check_leakage
from gatehouse.features.point_in_time.stage import retrieve_training_set
from gatehouse.operations.preparing_stage import prepare, require_contract
from gatehouse.pipelines.tasks import Tasks, forcible_stages
from gatehouse.store.parameters import parameter_of


@dataclass(frozen=True)
class Data:
    """Outputs of the data tasks, as they will be at run time: references, and the names of stale views.

    `as_of` is the newest availability time in the snapshot; `verdict` and `reasons` are those of the check for leakage.
    """

    snapshot: Any
    as_of: Any
    validation: Any
    feature_tables: Any
    stale: Any
    training_set: Any
    leakage: Any
    verdict: Any
    reasons: Any


def add_data_tasks(
    tasks: Tasks,
    source: Any,
    window: Any,
    backfill: Any,
    *,
    labelled: bool = True,
    leakage: dict[str, Any] | None = None,
    **span: Any,
) -> Data:
    """Add the task that takes and judges the snapshot, and the one that computes features and joins them to its rows.

    Args:
        labelled: Whether to retrieve rows with labels.
        leakage: Settings of the check of these rows for leakage; None in pipelines that train nothing.
        **span: The pipeline's parameters `since` and `until`, which the first task checks.
    """
    project = tasks.project
    file, settings = project.file, project.file.features
    contract = published_contract(project.contract.files[CONTRACT_FILE].decode())
    declared = file.source.model_dump(mode="json")  # With the contract's sensitive columns added to its own.
    for name, table in declared["tables"].items():
        table["sensitive"] = sorted({*table["sensitive"], *contract.sensitive(name, table["columns"])})
    taken = tasks.add(
        snapshot,
        prepare,
        snapshot,
        validate,
        title="Snapshot and validate",
        source=parameter_of(parse_source(declared)),
        location=source,
        window=window,
        backfill=backfill,
        contract={"reference": str(project.contract.reference)},
        baseline=file.baseline,
        snapshots=file.snapshots,
        configs=[str(config.reference) for config in project.configs()],
        model_name=file.model if leakage is not None else "",
        forcible=forcible_stages(),
        **span,
    )
    if url_env := getattr(file.source, "url_env", ""):
        tasks.entrust(taken, "source-url", url_env)
    raw, as_of, validation = (taken.outputs[name] for name in ("snapshot", "as_of", "validation"))
    computed = tasks.add(
        compute_features,
        require_contract,
        previous_features,
        compute_features,
        freshness,
        *([retrieve_training_set] if labelled else []),
        *([check_leakage] if leakage is not None else []),
        title="Compute and join features" if labelled else "Compute features",
        aside={freshness: ("freshness", "stale")},
        snapshot=raw,
        definitions={"reference": str(project.definitions.reference)},
        project=project.name,
        as_of=as_of,
        verdict=taken.outputs["verdict"],
        reasons=taken.outputs["reasons"],
        validation=validation,
        against=settings.freshness_against,
        service=settings.service if labelled else "",
        leakage=leakage or {},
    )
    tables = computed.outputs["feature_tables"]
    made = {name: computed.outputs[name] for name in ("stale", "training_set", "leakage", "verdict", "reasons")}
    return Data(raw, as_of, validation, tables, **made)


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
