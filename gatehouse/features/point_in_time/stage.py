"""The stage that makes a training set: entity rows with labels, joined point-in-time to features by Feast."""

from collections import Counter

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
    from gatehouse.features.definitions.repository import check_out
    from gatehouse.features.point_in_time.join_pieces import (
        ROWS,
        DecisionsResult,
        JoinRequest,
        entity_row_pieces,
        join,
        ranges,
    )
    from gatehouse.features.table_files import view_tables
    from gatehouse.pieces.piece import run_pieces

    origin = {"snapshot": request.snapshot, "definitions": request.definitions}
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace)
    results = run_pieces(store, entity_row_pieces(store, repository, **origin, as_of=request.as_of, rows=ROWS))
    decided = [result for result in results if isinstance(result, DecisionsResult)]
    set_aside = Counter[str]()
    for result in decided:
        set_aside.update(result.set_aside)
    features = {"feature_tables": request.feature_tables, "definitions": request.definitions}
    pieces = ranges(store, [part for result in decided for part in result.parts], ROWS)
    requests = [JoinRequest(rows=rows, **features, service=request.service) for rows in pieces]
    joined = run_pieces(store, [(join, rows) for rows in requests])
    parts = store.manifests(part.joined for part in joined)
    files = {f"part-{number:05d}.parquet": part.files[0] for number, part in enumerate(parts)}
    tables, views = view_tables(store, request.feature_tables), joined[0].views
    rows = sum(part.rows or 0 for part in parts)
    reference = store.publish(
        "training-sets",
        request.service,
        files,
        columns=parts[0].columns,
        rows=rows,
        derived_from=origin | {"feature_tables": request.feature_tables},
        configuration={"service": request.service, "as_of": request.as_of},
        details={
            "entity_keys": list(repository.entity_keys),
            "views": views,
            "versions": {
                name: {"version": repository.views[name].spec.version, "table": tables[name]} for name in views
            },
            "numeric": joined[0].numeric,
            "categorical": joined[0].categorical,
            "label": "label",
            "task": repository.label.task,
            "classes": list(repository.label.classes),
            "group": repository.label.group,
            "label_time": "label_time",
            "decision_time": "decision_time",
            "set_aside": dict(sorted(set_aside.items())),
        },
    )
    return RetrieveResult(training_set=str(reference), rows=rows, set_aside=dict(sorted(set_aside.items())))
