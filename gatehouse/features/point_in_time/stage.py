"""The stage that makes a training set: entity rows with labels, joined point-in-time to features by Feast."""

from datetime import datetime

from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore


class RetrieveRequest(StageModel):
    """Which feature service to join to the snapshot's entity rows; labels must be known at `as_of` (ISO 8601)."""

    snapshot: str
    feature_tables: str
    definitions: str
    service: str
    as_of: str


class RetrieveResult(StageModel):
    """The training set, its number of rows, and how many entity rows were set aside, by reason."""

    training_set: str
    rows: int
    set_aside: dict[str, int]


@stage("retrieve_training_set", title="Join features point-in-time")
def retrieve_training_set(request: RetrieveRequest, store: ArtifactStore) -> RetrieveResult:
    """Join a feature service to the entity rows point-in-time, through Feast.

    Raises ConfigurationError if the definitions do not load, or there is no such service.
    """
    from gatehouse.data.splitting.publication import publish_rows
    from gatehouse.features.computing.labels import entity_rows
    from gatehouse.features.database import connect, open_tables, set_time
    from gatehouse.features.definitions.repository import check_out
    from gatehouse.features.point_in_time.feast_store import applied, retrieve
    from gatehouse.features.table_files import feature_files, raw_tables, view_tables

    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        with connect() as connection:
            open_tables(connection, raw_tables(store, request.snapshot))
            set_time(connection, "as_of", datetime.fromisoformat(request.as_of))
            rows, set_aside = entity_rows(connection, repository)
        with applied(repository, feature_files(store, request.feature_tables), workspace) as feast:
            training_set = retrieve(feast, repository, request.service, rows, workspace)
        tables = view_tables(store, request.feature_tables)
        versions = {
            name: {"version": repository.views[name].spec.version, "table": tables[name]} for name in training_set.views
        }
        reference = publish_rows(
            store,
            "training-sets",
            request.service,
            training_set.table,
            derived_from={
                "snapshot": request.snapshot,
                "feature_tables": request.feature_tables,
                "definitions": request.definitions,
            },
            configuration={"service": request.service, "as_of": request.as_of},
            details={
                "entity_keys": list(repository.entity_keys),
                "views": training_set.views,
                "versions": versions,
                "numeric": training_set.numeric,
                "categorical": training_set.categorical,
                "label": "label",
                "task": repository.label.task,
                "classes": list(repository.label.classes),
                "group": repository.label.group,
                "label_time": "label_time",
                "decision_time": "decision_time",
                "set_aside": set_aside,
            },
        )
    return RetrieveResult(training_set=str(reference), rows=training_set.table.num_rows, set_aside=set_aside)
