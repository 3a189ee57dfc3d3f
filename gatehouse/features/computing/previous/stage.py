"""The stage that chooses the earlier feature tables to which those of a snapshot are added, and records the choice.

The record is `feature-parents/<project>/<n>.json`, beside the artifacts. A later run on an unchanged source must make
the same choice, even if other tables were computed in between.
"""

from datetime import datetime

from gatehouse.features.table_files import view_tables
from gatehouse.store.records import read_records
from gatehouse.store.reference import Reference
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

_RECORDS = "feature-parents"


class PreviousRequest(StageModel):
    """The snapshot and definitions to which earlier feature tables of the project are chosen."""

    snapshot: str
    definitions: str
    project: str


class PreviousResult(StageModel):
    """The earlier feature tables; empty for none."""

    feature_tables: str


@stage(
    "previous_features",
    title="Find earlier feature tables",
    effects=Effects(
        reads="earlier feature tables",
        writes="the record of its choices",
        why="Sees which feature tables there are; a choice that was made stays.",
    ),
)
def previous_features(request: PreviousRequest, store: ArtifactStore) -> PreviousResult:
    """Choose the feature tables to which those of a snapshot can be added, and record the choice.

    The chosen tables are the newest of an older snapshot with the same source and start, or of the same snapshot with
    other definitions. A recorded choice stays, so that an unchanged source is computed once. Before a new choice, the
    definitions are compared with those of all feature tables of the project, of any snapshot. If a file of the chosen
    tables is missing, another choice is made.

    Raises ConfigurationError if a view has another meaning than in one of them, under the same version.
    """
    from gatehouse.features.definitions.changes import require_one_meaning
    from gatehouse.features.definitions.repository import check_out

    folder = f"{_RECORDS}/{request.project}"
    key = {"snapshot": request.snapshot, "definitions": request.definitions}
    for _, record in sorted(read_records(store.objects, store.objects.list(folder)).items(), reverse=True):
        parent = str(record.get("parent", ""))
        complete = not parent or (store.exists(parent) and all(map(store.exists, view_tables(store, parent).values())))
        if {name: record.get(name) for name in key} == key and complete:
            return PreviousResult(feature_tables=parent)
    tables = list(store.references("feature-tables", request.project))
    by_definitions = {store.manifest(reference).derived_from["definitions"]: reference for reference in tables}
    by_definitions.pop(request.definitions, None)
    with store.workspace() as workspace:
        present = check_out(store, request.definitions, workspace / "present") if by_definitions else None
        for number, (definitions, reference) in enumerate(sorted(by_definitions.items())):
            if present and store.exists(definitions):
                earlier = check_out(store, definitions, workspace / str(number))
                require_one_meaning(earlier, present, f"The feature tables {reference}", present.views)
    now = store.manifest(request.snapshot)
    fitting: list[tuple[datetime, bool, bool, str]] = []
    for reference in tables:
        manifest = store.manifest(reference)
        snapshot = manifest.derived_from["snapshot"]
        same, alike = snapshot == request.snapshot, manifest.derived_from["definitions"] == request.definitions
        if (same and alike) or not all(map(store.exists, manifest.derived_from.values())):
            continue
        if not same:  # An older snapshot must have the same source and start.
            then = store.manifest(snapshot)
            starts = [str(details.get("window", "")).split("/")[0] for details in (then.details, now.details)]
            older = datetime.fromisoformat(then.details["as_of"]) < datetime.fromisoformat(now.details["as_of"])
            name = Reference.parse(snapshot).name
            if name != Reference.parse(request.snapshot).name or starts[0] != starts[1] or not older:
                continue
        fitting.append((datetime.fromisoformat(manifest.details["as_of"]), same, alike, str(reference)))
    # If equally new, those of this snapshot come first, then those of these definitions.
    parent = max(fitting)[3] if fitting else ""
    store.append(folder, key | {"parent": parent})
    return PreviousResult(feature_tables=parent)
