"""The feature stages: compute feature tables, retrieve a training set, check it for leakage, materialize online."""

import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.declaration import Effects, Resources
from gatehouse.components.artifacts.manifest import Column
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore

if TYPE_CHECKING:
    import pyarrow as pa

    from gatehouse.components.features.online.skew import Skew

_PART = "part-00000.parquet"
_VIEW = "view:"


class PreviousRequest(StageModel):
    """For which snapshot and definitions earlier feature tables of the project are wanted."""

    snapshot: str
    definitions: str
    project: str


class PreviousResult(StageModel):
    """The earlier feature tables; empty for none."""

    feature_tables: str


class ComputeRequest(StageModel):
    """A snapshot, the feature definitions (a configuration reference) to run on it, and earlier feature tables."""

    snapshot: str
    definitions: str
    project: str
    parent: str = ""


class ComputeResult(StageModel):
    """The feature tables, one a view, under one reference; and their rows by view."""

    feature_tables: str
    rows: dict[str, int]


class RetrieveRequest(StageModel):
    """Which feature service to join to the snapshot's entity rows, with labels known at `as_of` (ISO 8601)."""

    snapshot: str
    feature_tables: str
    definitions: str
    service: str
    as_of: str


class RetrieveResult(StageModel):
    """The training set, its rows, and how many entity rows were set aside, by reason."""

    training_set: str
    rows: int
    set_aside: dict[str, int]


class LeakageRequest(StageModel):
    """A training set with all that it was made from; a feature above the ROC AUC `alarm` is taken for a leak."""

    snapshot: str
    feature_tables: str
    training_set: str
    definitions: str
    alarm: float = 0.80
    cuts: int = 6


class LeakageResult(StageModel):
    """The leakage report; the verdict `pass` or `fail`, and why."""

    leakage: str
    verdict: str
    reasons: tuple[str, ...]


class MaterializeRequest(StageModel):
    """What to write to the online store: the rows of a service's views known at `as_of` (ISO 8601).

    A skew above `max_skew` fails the verdict. `rewrite` writes everything from the beginning, also where the store was
    brought to a later time before.
    """

    snapshot: str
    feature_tables: str
    definitions: str
    project: str
    service: str
    as_of: str
    max_skew: float = 0.0
    rewrite: bool = False


class MaterializeResult(StageModel):
    """The share of values read back online that differ from the offline value, the verdict on it, and the report.

    Of the `cells` that were compared, `values` are those with a value online or offline. `unseen` are views of which
    there was none, which fails the verdict. `written` counts the rows that changed what the store holds, by
    view.
    """

    skew: float
    cells: int
    values: int
    differing: dict[str, int]
    unseen: tuple[str, ...]
    written: dict[str, int]
    verdict: str
    reasons: tuple[str, ...]
    report: str


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
    """Find the feature tables that those of a snapshot can be added to, and remember the choice.

    They are of an older snapshot of the same source and beginning, the newest there is; or of the same snapshot with
    other definitions. A choice stays, so that an unchanged source is computed once.
    """
    from gatehouse.components.features.computing.previous import find_parent

    return PreviousResult(feature_tables=find_parent(store, request.project, request.snapshot, request.definitions))


@stage("compute_features", title="Compute feature tables", resources=Resources(cpu="2", memory="4G"))
def compute_features(request: ComputeRequest, store: ArtifactStore) -> ComputeResult:
    """Run the feature definitions on a snapshot: one table a view, each row with the time from which it is known.

    With earlier feature tables, only the event times that new or changed source rows touch are computed; what was known
    then stays in the tables.

    Raises:
        ConfigurationError: if the definitions do not run, naming the file; or if a view has another meaning than in the
            earlier tables, under the same version.
    """
    from gatehouse.components.features.computing.feature_tables import changed_views, compute_tables
    from gatehouse.components.features.definitions.repository import check_out

    snapshot = store.manifest(request.snapshot)
    as_of = str(snapshot.details["as_of"])
    details: dict[str, Any] = {"as_of": as_of}
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        if request.parent:
            changed = changed_views(store, repository, request.definitions, request.parent, workspace / "earlier_repo")
            details |= {"changed": changed} if changed else {}
        published = compute_tables(
            store, repository, snapshot.derived_from, datetime.fromisoformat(as_of), request.parent, workspace
        )
    rows = {name: store.manifest(one.table).rows or 0 for name, one in published.items()}
    inputs: dict[str, Reference | str] = {f"{_VIEW}{name}": one.table for name, one in published.items()}
    # Kept here, so that a table that nothing changed keeps its reference.
    settled = {name: one.settled.isoformat() for name, one in published.items()}
    reference = store.publish(
        "feature-tables",
        request.project,
        {"rows.json": canonical_json(rows)},
        derived_from=inputs | {"snapshot": request.snapshot, "definitions": request.definitions},
        details=details | {"views": sorted(published), "settled": settled},
    )
    return ComputeResult(feature_tables=str(reference), rows=rows)


@stage("retrieve_training_set", title="Join features point-in-time", resources=Resources(cpu="2", memory="8G"))
def retrieve_training_set(request: RetrieveRequest, store: ArtifactStore) -> RetrieveResult:
    """Join a feature service to the entity rows point-in-time, through Feast.

    Raises:
        ConfigurationError: if the definitions do not load, or there is no such service.
    """
    from gatehouse.components.features.computing.compute import (
        connect,
        entity_rows,
        open_tables,
        set_time,
        write_parquet,
    )
    from gatehouse.components.features.definitions.repository import check_out
    from gatehouse.components.features.point_in_time.feast_store import applied
    from gatehouse.components.features.point_in_time.retrieval import retrieve

    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        with connect() as connection:
            open_tables(connection, raw_tables(store, request.snapshot))
            set_time(connection, "as_of", datetime.fromisoformat(request.as_of))
            rows, set_aside = entity_rows(connection, repository)
        with applied(repository, feature_files(store, request.feature_tables), workspace) as feast:
            found = retrieve(feast, repository, request.service, rows, workspace)
        path, tables = workspace / _PART, view_tables(store, request.feature_tables)
        write_parquet(found.table, path)
        reference = store.publish(
            "training-sets",
            request.service,
            {_PART: path},
            columns=_columns(found.table),
            rows=found.table.num_rows,
            rows_per_file={_PART: found.table.num_rows},
            derived_from={
                "snapshot": request.snapshot,
                "feature_tables": request.feature_tables,
                "definitions": request.definitions,
            },
            configuration={"service": request.service, "as_of": request.as_of},
            details={
                "entity_keys": list(repository.entity_keys),
                "views": found.views,
                **({"on_demand": found.on_demand} if found.on_demand else {}),
                "versions": {
                    name: {"version": repository.views[name].spec.version, "table": tables[name]}
                    for name in found.views
                },
                "numeric": found.numeric,
                "categorical": found.categorical,
                "label": "label",
                "label_time": "label_time",
                "decision_time": "decision_time",
                "set_aside": set_aside,
            },
        )
    return RetrieveResult(training_set=str(reference), rows=found.table.num_rows, set_aside=set_aside)


@stage("check_leakage", title="Check for leakage", resources=Resources(cpu="2", memory="8G"))
def check_leakage(request: LeakageRequest, store: ArtifactStore) -> LeakageResult:
    """Judge whether the training set holds only what was known at decision time; it writes its report either way."""
    import pyarrow.parquet as pq

    from gatehouse.components.features.definitions.repository import check_out
    from gatehouse.components.features.leakage.replay import Difference, cut_times, replay
    from gatehouse.components.features.leakage.report import leakage_page
    from gatehouse.components.features.leakage.single_features import single_feature_auc

    manifest = store.manifest(request.training_set)
    training_set = pq.read_table(store.path(request.training_set, _PART))
    tables, features = raw_tables(store, request.snapshot), feature_files(store, request.feature_tables)
    compared: list[tuple[str, int]] = []
    differences: list[Difference] = []
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        for cut in cut_times(training_set["decision_time"], request.cuts):
            rows, found = replay(repository, tables, features, training_set, manifest.details["views"], cut)
            compared.append((cut.isoformat(), rows))
            differences += found
    areas = single_feature_auc(
        training_set, manifest.details["label"], manifest.details["numeric"], manifest.details["categorical"]
    )
    reasons = _reasons(differences, areas, request.alarm)
    body: dict[str, Any] = {
        "verdict": "fail" if reasons else "pass",
        "reasons": reasons,
        "alarm": request.alarm,
        "cuts": [{"cut": cut, "rows": rows} for cut, rows in compared],
        "differences": [
            {"where": one.where, "view": one.view, "feature": one.feature, "cut": one.cut, "rows": one.rows}
            for one in differences
        ],
        "single_feature_auc": {name: round(area, 6) for name, area in areas.items()},
    }
    page = leakage_page(manifest.name, compared, differences, areas, request.alarm, reasons, training_set.num_rows)
    reference = store.publish(
        "leakage",
        manifest.name,
        {"leakage.json": canonical_json(body), "report.html": page},
        derived_from={
            "training_set": request.training_set,
            "feature_tables": request.feature_tables,
            "snapshot": request.snapshot,
            "definitions": request.definitions,
        },
        configuration={"alarm": request.alarm, "cuts": request.cuts},
        details={"verdict": body["verdict"]},
    )
    return LeakageResult(leakage=str(reference), verdict=body["verdict"], reasons=tuple(reasons))


@stage(
    "materialize",
    title="Materialize online",
    effects=Effects(
        reads="the online store",
        writes="the online store",
        why="Writes what the store does not hold yet; a repeat goes on where it stopped.",
    ),
    resources=Resources(cpu="2", memory="4G", minutes=60),
)
def materialize(request: MaterializeRequest, store: ArtifactStore) -> MaterializeResult:
    """Bring the online store up to what was known at `as_of`, read a sample back, and judge the skew.

    Raises:
        ConfigurationError: if the settings of the online store do not hold.
        StoreError: if the online store cannot be reached, or is at a later time.
    """
    from gatehouse.components.features.definitions.repository import check_out
    from gatehouse.components.features.freshness.freshness import measure_freshness
    from gatehouse.components.features.online.materialization import materialize_views
    from gatehouse.components.features.online.report import skew_page
    from gatehouse.components.features.online.skew import measure_skew
    from gatehouse.components.features.online.store import online_view, open_online
    from gatehouse.components.features.point_in_time.feast_store import applied

    as_of = datetime.fromisoformat(request.as_of)
    files = feature_files(store, request.feature_tables)
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        with applied(repository, files, workspace) as feast:
            projections = feast.get_feature_service(request.service).feature_view_projections
        stored = [one for one in projections if one.name in repository.views]  # On-demand features are not.
        served = {one.name: [field.name for field in one.features] for one in stored}
        online = open_online(repository.folder, online_store(store, request.project))
        whole = [online_view(repository.views[name]) for name in served]
        tables = {name: [files[name]] for name in served}
        settled = settled_times(store, request.feature_tables)
        written = materialize_views(
            online,
            whole,
            tables,
            as_of,
            settled=settled,
            rewrite=request.rewrite,
            reference=request.feature_tables,
        )
        read = [online_view(repository.views[name], features) for name, features in served.items()]
        recent = decided_last(store, request.snapshot, repository, as_of)
        skew = measure_skew(online, read, tables, recent, as_of, {one.view: one.since for one in written})
    reasons = skew_reasons(skew, read, as_of, request.max_skew)
    fresh = measure_freshness((repository.views[name] for name in served), files, as_of)
    page = skew_page(request.service, request.as_of, request.max_skew, skew, written, fresh, reasons)
    verdict = "fail" if reasons else "pass"
    report = store.publish(
        "materializations",
        request.service,
        {"skew.json": canonical_json(_skew_body(skew, verdict, reasons, request.max_skew)), "report.html": page},
        derived_from={
            "snapshot": request.snapshot,
            "feature_tables": request.feature_tables,
            "definitions": request.definitions,
        },
        configuration={"as_of": request.as_of, "max_skew": request.max_skew},
        details={"verdict": verdict},
    )
    return MaterializeResult(
        skew=skew.share,
        cells=skew.cells,
        values=skew.values,
        unseen=skew.unseen,
        differing=skew.differing,
        written={one.view: one.changed for one in written},
        verdict=verdict,
        reasons=tuple(reasons),
        report=str(report),
    )


def _skew_body(skew: "Skew", verdict: str, reasons: Sequence[str], max_skew: float) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "reasons": list(reasons),
        "skew": skew.share,
        "max_skew": max_skew,
        "cells": skew.cells,
        "values": skew.values,
        "unseen": skew.unseen,
        "compared": [
            {
                "view": one.view,
                "feature": one.feature,
                "keys": one.kind,
                "cells": one.cells,
                "values": one.values,
                "differing": one.differing,
            }
            for one in skew.compared
        ],
    }


def decided_last(store: ArtifactStore, snapshot: str, repository: Any, as_of: datetime) -> "pa.Table":
    """The entity keys of the rows decided last before `as_of`."""
    from gatehouse.components.features.computing.compute import connect, entity_rows, open_tables, set_time
    from gatehouse.components.features.online.skew import SAMPLE

    with connect() as connection:
        open_tables(connection, raw_tables(store, snapshot))
        set_time(connection, "as_of", as_of)
        rows, _ = entity_rows(connection, repository)
    return rows.select(list(repository.entity_keys)).slice(max(0, rows.num_rows - SAMPLE))


def skew_reasons(skew: Any, views: Iterable[Any], as_of: datetime, max_skew: float) -> list[str]:
    """Why the skew of views is more than `max_skew` allows; empty where it is not.

    A view of which no value was compared is as skewed as can be: nothing shows that it is served as it is trained on.
    """
    missing = [
        f"{view.name}: no value was compared: as of {as_of.isoformat()} {skew.why_unseen(view)}, so it is served empty"
        for view in views
        if view.name in skew.unseen and max_skew < 1
    ]
    if not skew.values or skew.share <= max_skew:
        return missing
    worst = sorted(skew.differing.items(), key=lambda item: (-item[1], item[0]))
    return [
        *missing,
        f"skew {skew.share:.6f} is above the {max_skew:.6f} that max_skew allows: {sum(skew.differing.values())} of "
        f"{skew.values} values read back online differ from the offline ones",
        *(f"{feature}: {count} values differ" for feature, count in worst[:10]),
    ]


def raw_tables(store: ArtifactStore, snapshot: str) -> dict[str, list[Path]]:
    """The verified Parquet files of every table of a snapshot."""
    datasets = store.manifest(snapshot).derived_from
    return {table: store.paths(reference) for table, reference in datasets.items()}


def feature_files(store: ArtifactStore, feature_tables: str) -> dict[str, Path]:
    """The verified Parquet file of every view of the feature tables; a folder of them where there are several."""
    views = view_tables(store, feature_tables)
    return {name: _file_or_folder(store, Reference.parse(reference)) for name, reference in views.items()}


def view_tables(store: ArtifactStore, feature_tables: str) -> dict[str, str]:
    """Reference of the table of every view of the feature tables."""
    inputs = store.manifest(feature_tables).derived_from
    return {role.removeprefix(_VIEW): reference for role, reference in inputs.items() if role.startswith(_VIEW)}


def settled_times(store: ArtifactStore, feature_tables: str) -> dict[str, datetime]:
    """Until when the rows of every view are settled: those known from then on are replaced by the next tables."""
    said = store.manifest(feature_tables).details["settled"]
    return {name: datetime.fromisoformat(moment) for name, moment in said.items()}


def _file_or_folder(store: ArtifactStore, reference: Reference) -> Path:
    names = [entry.path for entry in store.manifest(reference).files]
    paths = store.paths(reference)
    if len(paths) == 1:
        return paths[0]
    # Named as workspaces are, so that it is swept away once this process is gone.
    folder = store.local_folder / "tmp" / f"work-{os.getpid()}-{reference.name}-{reference.digest[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in zip(names, paths, strict=True):
        link = folder / name
        if not link.is_file():
            link.unlink(missing_ok=True)
            link.symlink_to(path.resolve())
    return folder


def online_store(store: ArtifactStore, project: str) -> Path:
    """The SQLite file of a project's online store; its folder is made where it is missing."""
    folder = store.local_folder / "online" / project
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "online.db"


def streams_folder(store: ArtifactStore, project: str, feature_tables: Reference) -> Path:
    """Where pushers that start from feature tables keep the tables that they push, and where they stand."""
    return store.local_folder / "streams" / project / feature_tables.digest[:16]


def _columns(table: "pa.Table") -> list[Column]:
    return [Column(field.name, str(field.type), field.nullable) for field in table.schema]


def _reasons(differences: list[Any], areas: dict[str, float], alarm: float) -> list[str]:
    first: dict[tuple[str, str], str] = {}
    for one in differences:
        first.setdefault((one.view, one.feature), str(one))
    loud = [
        f"{name} alone tells the label with ROC AUC {area:.3f}, above the alarm of {alarm:.2f}: it may hold the outcome"
        for name, area in sorted(areas.items())
        if area > alarm
    ]
    return [*first.values(), *loud]
