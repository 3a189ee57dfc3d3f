"""The pieces of the leakage check: the plan of the moments, their replay, and the areas of single features."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.features.computing.spans import BEGINNING
from gatehouse.features.computing.versions import files_from
from gatehouse.features.database import connect
from gatehouse.features.definitions.repository import check_out
from gatehouse.features.leakage.alarms import single_feature_auc
from gatehouse.features.leakage.replay import WINDOW, Difference, Replay
from gatehouse.features.table_files import CORRECTED, Files, raw_tables, view_tables
from gatehouse.metrics.tasks import TASKS
from gatehouse.pieces.piece import KIND, piece
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import Spec
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

REPLAY = "replay.json"


class Moment(Spec):
    """A moment of the past, and the views that are replayed there."""

    cut: datetime
    views: tuple[str, ...]


class Checked(StageModel):
    """A training set with rows, and everything it was made from."""

    snapshot: str
    feature_tables: str
    training_set: str
    definitions: str


class PlanRequest(Checked):
    """The same, and the number of moments of each view."""

    count: int


class PlanResult(StageModel):
    """The moments in order, and the tables from which `known/` takes nothing away."""

    moments: tuple[Moment, ...]
    untouched: tuple[str, ...]


class ReplayRequest(Checked):
    """The same, and moments to replay; no value of a row is kept if there are columns in `sensitive`."""

    moments: tuple[Moment, ...]
    sensitive: tuple[str, ...] = ()


class ReplayResult(StageModel):
    """The artifact with the moments as in the report, with numbers of rows compared; and with the differences."""

    replayed: str


class AreasRequest(StageModel):
    """Features of a training set to score alone."""

    training_set: str
    features: tuple[str, ...]


class AreasResult(StageModel):
    """The ROC AUC of each feature alone against the label."""

    areas: dict[str, float]


@piece
def plan(request: PlanRequest, store: ArtifactStore) -> PlanResult:
    """Choose the moments. Reads the decisions, and the times at which the rows of views became known."""
    decisions = pq.read_table(store.paths(request.training_set), columns=["decision_time"])["decision_time"]
    with _replay(request, store) as opened:
        moments = opened.plan(request.count, decisions, {name: _files(store, request, name) for name in opened.views})
        return PlanResult(
            moments=tuple(Moment(cut=cut, views=tuple(views)) for cut, views in moments.items()),
            untouched=tuple(opened.untouched_tables(decisions)),
        )


@piece
def replay(request: ReplayRequest, store: ArtifactStore) -> ReplayResult:
    """Replay moments. Reads the decisions and the feature rows of the hours up to each."""
    cuts, differences, decided = list[dict[str, Any]](), list[Difference](), pc.field("decision_time")
    with _replay(request, store) as opened:
        for moment in request.moments:
            start, end = (pa.scalar(time, pa.timestamp("us", "UTC")) for time in (moment.cut - WINDOW, moment.cut))
            rows = pq.read_table(store.paths(request.training_set), filters=(decided > start) & (decided <= end))
            files = {name: _files(store, request, name, moment.cut) for name in moment.views}
            compared, differing = opened.compare(moment.cut, rows, files)
            cuts.append({"cut": moment.cut.isoformat(), "rows": rows.num_rows, "views": compared})
            differences += differing
    if request.sensitive:
        differences = [difference.without_values(request.sensitive) for difference in differences]
    body = {"cuts": cuts, "differences": [difference.as_dict() for difference in differences]}
    origin = {name: getattr(request, name) for name in Checked.model_fields}
    # Differences hold values of rows. An erasure finds them by what they are derived from.
    return ReplayResult(
        replayed=str(store.publish(KIND, "replay", {REPLAY: canonical_json(body)}, derived_from=origin))
    )


@piece
def areas(request: AreasRequest, store: ArtifactStore) -> AreasResult:
    """Score features alone. Reads their columns, the label, and the group of a ranking."""
    details = store.manifest(request.training_set).details
    task = TASKS[details["task"]]
    group = details.get("group", "") if task.counted == "group" else ""
    columns = [*dict.fromkeys(filter(None, (*request.features, details["label"], group)))]
    rows = pq.read_table(store.paths(request.training_set), columns=columns)
    numbers, texts = ([*filter(details[kind].__contains__, request.features)] for kind in ("numeric", "categorical"))
    return AreasResult(areas=single_feature_auc(rows, details["label"], task, numbers, texts, group))


@contextmanager
def _replay(request: Checked, store: ArtifactStore) -> Iterator[Replay]:
    views = store.manifest(request.training_set).details["views"]
    with store.workspace() as workspace, connect() as connection:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        yield Replay(connection, repository, raw_tables(store, request.snapshot), views)


def _files(store: ArtifactStore, request: Checked, view: str, cut: datetime | None = None) -> Files:
    """The verified files of a view's table; with a cut, those that can hold rows compared there, at least one.

    Corrected rows may have their earlier versions in any file before the cut.
    """
    table = view_tables(store, request.feature_tables)[view]
    entries = {entry.path: entry for entry in store.manifest(table).files}
    names = [*entries]
    if cut:
        corrected = {name for name in names if name.startswith(CORRECTED)}
        near = {entry.path for entry in files_from(entries, BEGINNING if corrected else cut - WINDOW, cut)}
        names = [name for name in names if name in near | corrected] or names[:1]
    return dict(zip(names, store.paths(table, names), strict=True))
