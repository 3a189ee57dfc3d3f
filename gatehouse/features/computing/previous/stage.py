"""The stage that chooses the earlier feature tables to which those of a snapshot are added, and records the choice.

The record is `feature-parents/<project>/<n>.json`, beside the artifacts. A later run on an unchanged source must make
the same choice, even if other tables were computed in between.
"""

from datetime import datetime

from gatehouse.features.table_files import view_tables
from gatehouse.store.manifest import Manifest
from gatehouse.store.records import read_records
from gatehouse.store.reference import Reference
from gatehouse.store.stage import Effects, Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore

_RECORDS = "feature-parents"


class PreviousRequest(StageModel):
    """The snapshot and definitions for which earlier feature tables of the project are wanted.

    Attributes:
        snapshot: Reference of the snapshot.
        definitions: Reference of the feature definitions.
        project: Name of the project.
    """

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
    resources=Resources(cpu="500m", memory="512M", minutes=5),
)
def previous_features(request: PreviousRequest, store: ArtifactStore) -> PreviousResult:
    """Choose the feature tables to which those of a snapshot can be added, and record the choice.

    The chosen tables are the newest of an older snapshot with the same source and start, or of the same snapshot with
    other definitions. A recorded choice stays, so that an unchanged source is computed once. Before a new choice, the
    definitions are compared with those of all feature tables of the project, of any snapshot. Tables of which a file is
    missing cannot be added to: then another choice is made.

    Raises:
        ConfigurationError: if a view has another meaning than in one of them, under the same version.
    """
    folder = f"{_RECORDS}/{request.project}"
    wanted = {"snapshot": request.snapshot, "definitions": request.definitions}
    for _, body in sorted(read_records(store.objects, store.objects.list(folder)).items(), reverse=True):
        parent = str(body.get("parent", ""))
        if {name: body.get(name) for name in wanted} == wanted and (not parent or _complete(store, parent)):
            return PreviousResult(feature_tables=parent)
    _require_versions(request, store)
    parent = _newest(request, store)
    store.append(folder, wanted | {"parent": parent})
    return PreviousResult(feature_tables=parent)


def _require_versions(request: PreviousRequest, store: ArtifactStore) -> None:
    from gatehouse.features.definitions.changes import require_one_meaning
    from gatehouse.features.definitions.repository import check_out

    of = {store.manifest(one).derived_from["definitions"]: one for one in _tables(request, store)}
    others = {definitions: tables for definitions, tables in of.items() if definitions != request.definitions}
    if not others:
        return
    with store.workspace() as workspace:
        present = check_out(store, request.definitions, workspace / "present")
        for number, (definitions, tables) in enumerate(sorted(others.items())):
            if store.exists(definitions):
                earlier = check_out(store, definitions, workspace / str(number))
                require_one_meaning(earlier, present, f"The feature tables {tables}", present.views)


def _complete(store: ArtifactStore, feature_tables: str) -> bool:
    """Whether the feature tables and the files of every view are in the store."""
    return store.exists(feature_tables) and all(map(store.exists, view_tables(store, feature_tables).values()))


def _tables(request: PreviousRequest, store: ArtifactStore) -> list[Reference]:
    return list(store.references("feature-tables", request.project))


def _newest(request: PreviousRequest, store: ArtifactStore) -> str:
    """The newest tables that fit. If equally new, those of this snapshot first, then those of these definitions."""
    now = store.manifest(request.snapshot)
    found: list[tuple[datetime, bool, bool, str]] = []
    for reference in _tables(request, store):
        manifest = store.manifest(reference)
        if not _fits(store, manifest, request.snapshot, now) or not all(
            map(store.exists, manifest.derived_from.values())
        ):
            continue
        same = manifest.derived_from["snapshot"] == request.snapshot
        alike = manifest.derived_from["definitions"] == request.definitions
        if not (same and alike):
            found.append((datetime.fromisoformat(manifest.details["as_of"]), same, alike, str(reference)))
    return max(found)[3] if found else ""


def _fits(store: ArtifactStore, manifest: Manifest, snapshot: str, now: Manifest) -> bool:
    """Whether tables are of this snapshot, or of an older one with the same source and start."""
    other = manifest.derived_from["snapshot"]
    if other == snapshot:
        return True
    if Reference.parse(other).name != Reference.parse(snapshot).name or not store.exists(other):
        return False
    then = store.manifest(other)
    starts = [str(one.details.get("window", "")).split("/")[0] for one in (then, now)]
    older = datetime.fromisoformat(then.details["as_of"]) < datetime.fromisoformat(now.details["as_of"])
    return starts[0] == starts[1] and older
