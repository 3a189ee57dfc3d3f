"""The stage that runs feature definitions on a snapshot: one table per view, each row with the time it became known."""

from datetime import datetime
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore


class ComputeRequest(StageModel):
    """A snapshot, the definitions to run on it, and earlier feature tables to add to, `parent` (empty for none)."""

    snapshot: str
    definitions: str
    project: str
    parent: str = ""


class ComputeResult(StageModel):
    """The feature tables, one per view, under one reference; and their row counts by view."""

    feature_tables: str
    rows: dict[str, int]


@stage(
    "compute_features",
    title="Compute feature tables",
)
def compute_features(request: ComputeRequest, store: ArtifactStore) -> ComputeResult:
    """Run the feature definitions on a snapshot, and publish the tables of all views together.

    With earlier feature tables, only the event times that new or changed source rows can affect are computed; rows that
    were known before stay in the tables.

    Raises ConfigurationError if the definitions do not run, naming the file; or if a view has another meaning than in
    the earlier tables, under the same version.
    """
    from gatehouse.features.computing.feature_tables import changed_views, compute_tables
    from gatehouse.features.definitions.repository import check_out
    from gatehouse.features.table_files import VIEW

    snapshot = store.manifest(request.snapshot)
    as_of = str(snapshot.details["as_of"])
    if not as_of:
        raise ConfigurationError(
            f"{snapshot.reference} has no table with event times, and features are known from a time on. State "
            "event_time of a table in the source."
        )
    changed: dict[str, list[str]] = {}
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        if request.parent:
            changed = changed_views(store, repository, request.definitions, request.parent, workspace / "earlier_repo")
        published = compute_tables(
            store,
            repository,
            request.definitions,
            snapshot.derived_from,
            datetime.fromisoformat(as_of),
            request.parent,
        )
    inputs: dict[str, Reference | str] = {f"{VIEW}{name}": table for name, (table, _) in published.items()}
    # `settled` is kept here and not with each table, so that a table that nothing changed keeps its reference.
    settled = {name: time.isoformat() for name, (_, time) in published.items()}
    details: dict[str, Any] = {"as_of": as_of, "settled": settled}
    reference = store.publish(
        "feature-tables",
        request.project,
        {},
        derived_from=inputs | {"snapshot": request.snapshot, "definitions": request.definitions},
        details=details | ({"changed": changed} if changed else {}),
    )
    rows = {name: store.manifest(table).rows or 0 for name, (table, _) in published.items()}
    return ComputeResult(feature_tables=str(reference), rows=rows)
