"""The stage that writes feature tables to the online store, reads a sample back, and judges the skew."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gatehouse.store.canonical import canonical_json
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.features.freshness_stage import Freshness
    from gatehouse.online.materialization import Materialized
    from gatehouse.online.skew import Skew

REPORT = "skew.json"


class MaterializeRequest(StageModel):
    """The rows to write to the online store: those of a service's views that were known at `as_of` (ISO 8601).

    If more than the share `max_skew` of the values differs, the verdict is fail. With `rewrite` all rows are written,
    even if the store is at a later time.
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
    """The share of values read back online that differ from the offline values, the verdict on it, and the report.

    `cells` counts all comparisons, `values` those with a value online or offline. `unseen` lists the views without any
    compared value, which fail the verdict. `written` counts by view the rows that changed the content of the store.
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
    "materialize",
    title="Materialize online",
    effects=Effects(
        reads="the online store",
        writes="the online store",
        why="Writes what the store does not hold yet; a repeat goes on where it stopped.",
    ),
    pages={"materializations": "gatehouse.online.report:page"},
)
def materialize(request: MaterializeRequest, store: ArtifactStore) -> MaterializeResult:
    """Write what was known at `as_of` to the online store, read a sample back, and judge the skew.

    Raises ConfigurationError if there is no such service, the online store's settings are wrong, or a view has another
    meaning than in the store, under the same version; StoreError if the store cannot be reached or is at a later time.
    """
    from gatehouse.features.definitions.changes import require_one_meaning
    from gatehouse.features.definitions.repository import check_out
    from gatehouse.features.freshness_stage import freshness_of
    from gatehouse.features.table_files import feature_files, raw_tables, settled_times
    from gatehouse.online.materialization import materialize_views
    from gatehouse.online.serving import open_online
    from gatehouse.online.skew import decided_last, measure_skew, skew_reasons
    from gatehouse.online.store import online_view

    as_of = datetime.fromisoformat(request.as_of)
    files = feature_files(store, request.feature_tables)
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        served = [repository.views[name] for name in repository.service(request.service).views]
        online = open_online(store, request.project, repository.folder)
        stored_tables = {view.name: online.state(view.name).tables for view in served}
        for number, tables in enumerate(sorted({*stored_tables.values()} - {""})):
            if store.exists(tables):
                definitions = store.manifest(tables).derived_from["definitions"]
                before = check_out(store, definitions, workspace / f"before-{number}")
                names = [name for name, stored in stored_tables.items() if stored == tables]
                require_one_meaning(before, repository, f"The online store, which holds {tables},", names)
    views = [online_view(view) for view in served]
    paths = {view.name: [*files[view.name].values()] for view in served}
    settled = settled_times(store, request.feature_tables)
    written = materialize_views(
        online, views, paths, as_of, settled=settled, rewrite=request.rewrite, reference=request.feature_tables
    )
    recent = decided_last(repository, raw_tables(store, request.snapshot), as_of)
    skew = measure_skew(online, views, paths, recent, as_of, {result.view: result.since for result in written})
    reasons = skew_reasons(skew, views, request.max_skew)
    verdict = "fail" if reasons else "pass"
    fresh = freshness_of([view for view in served if not view.spec.static], files, as_of)
    body = report_body(as_of, request.max_skew, skew, reasons, written, fresh)
    report = store.publish(
        "materializations",
        request.service,
        {REPORT: canonical_json(body)},
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
        written={result.view: result.changed for result in written},
        verdict=verdict,
        reasons=tuple(reasons),
        report=str(report),
    )


def report_body(
    as_of: datetime,
    max_skew: float,
    skew: "Skew",
    reasons: Sequence[str],
    written: Sequence["Materialized"],
    fresh: Sequence["Freshness"],
) -> dict[str, Any]:
    """The content of `skew.json`, with the ages of the views in seconds."""
    ages = []
    for freshness in fresh:
        times = {name: getattr(freshness, name) for name in ("allowed", "age", "known_age")}
        seconds = {name: None if time is None else time.total_seconds() for name, time in times.items()}
        ages.append({"view": freshness.view, **seconds, "ahead": freshness.ahead, "stale": freshness.stale})
    return {
        "verdict": "fail" if reasons else "pass",
        "reasons": list(reasons),
        "as_of": as_of.isoformat(),
        "skew": skew.share,
        "max_skew": max_skew,
        "compared": [asdict(comparison) for comparison in skew.compared],
        "written": [asdict(result) for result in written],
        "freshness": ages,
    }
