"""The operations table: one row for each task of a run that ended, and one for the whole run.

It is kept in Parquet files `<store>/operations/stages/<n>.parquet`, n from 1, which are only added, each with the runs
that ended since the previous file. If another process takes a number first, the missing runs are computed again, so no
end of a run is in the table twice. Values that were not measured are null, never 0.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gatehouse.operations.ending.outcome import ENDED, is_of_task, seconds_of
from gatehouse.store.run import Event, end_number, end_of, events, recorded_runs
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.machine import GPU_PERCENT
from gatehouse.tracking.provenance import Prices, prices_here

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "operations/stages"
_KINDS = {"str": "string", "float": "double", "int": "int64"}


@dataclass(frozen=True)
class Row:
    """One task of a run; with an empty `stage`, the whole run. Times are in seconds, moments since 1970.

    `state` is `finished`, `hit` (from the memo), `failed`, `stopped`, `tolerated`, or `killed` if a start has no end;
    for a run `succeeded`, `failed`, `stopped` or `unknown`. `began` and `seconds` are of the last attempt, and
    `queue_seconds` is how long it waited before. `end` counts the ends of a run that was tried again.
    `data_to_model_seconds` is from the start of the snapshot to an approved model. `gpu_percent` is the mean of all
    GPUs that trained.
    """

    run: str
    project: str
    pipeline: str
    stage: str
    state: str
    began: float
    seconds: float
    attempts: int
    queue_seconds: float | None = None
    rows_in: int | None = None
    rows_rejected: int | None = None
    data_age_hours: float | None = None
    cost: float | None = None
    end: int = 1
    verdict: str | None = None
    decision: str | None = None
    evaluation: str | None = None
    data_to_model_seconds: float | None = None
    error: str | None = None
    gpu_percent: float | None = None


@dataclass(frozen=True)
class Waited:
    """How long a run waited until it was running, and by stage, since when it waited only for its pod, if known."""

    run: float | None = None
    tasks: Mapping[str, float] = field(default_factory=dict)


def update(
    store: ArtifactStore,
    prices: Prices | None = None,
    waited: Mapping[str, Waited] | None = None,
    recorded: Mapping[str, set[str]] | None = None,
) -> int:
    """Add the runs that ended and are not in the table; returns their number.

    By default the prices are those of the environment. Who knows how long runs `waited` gives it by run id, and who has
    listed the names of the records of every run gives these as `recorded`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {name: str(getattr(kind, "__name__", kind)).partition(" ")[0] for name, kind in Row.__annotations__.items()}
    schema = pa.schema([pa.field(name, pa.type_for_alias(_KINDS[kind])) for name, kind in kinds.items()])
    while True:
        files = sorted(store.objects.list(FOLDER))
        last_ends: dict[str, int] = {}
        for file in files:
            columns = _read(store, file, ["run", "end"]).to_pydict()
            for run, number in zip(columns["run"], columns["end"], strict=True):
                last_ends[run] = max(last_ends.get(run, 0), number)
        runs, recorded = recorded or recorded_runs(store), None
        ended = [run for run, names in runs.items() if end_number(names) > last_ends.get(run, 0)]
        if not ended:
            return 0
        rows: list[Row] = []
        for run in sorted(ended):
            record = [event for _, event in events(store, run)]
            end = end_of(store, run) or {}
            rows += rows_of(run, end, record, prices or prices_here(), (waited or {}).get(run))
        written = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([vars(row) for row in rows], schema=schema), written, compression="zstd")
        if store.objects.put_bytes(f"{FOLDER}/{len(files) + 1:06d}.parquet", written.getvalue()):
            return len(ended)


def read(store: ArtifactStore, since: float = 0.0) -> list[Row]:
    """The rows of the last end of each run that began after `since` (seconds since 1970), in order of time."""
    rows: list[Row] = []
    for file in sorted(store.objects.list(FOLDER)):
        # A later version may have written columns that this version does not know.
        table = _read(store, file)
        columns = [name for name in table.column_names if name in Row.__annotations__]
        rows += [Row(**body) for body in table.select(columns).to_pylist()]
    last_ends = {row.run: row.end for row in sorted(rows, key=lambda row: row.end)}
    recent = (row for row in rows if row.began >= since and row.end == last_ends[row.run])
    return sorted(recent, key=lambda row: row.began)


def _read(store: ArtifactStore, file: str, columns: list[str] | None = None) -> "pa.Table":
    import pyarrow.parquet as pq

    return pq.read_table(io.BytesIO(store.objects.get_bytes(file)), columns=columns)


def rows_of(
    run: str, end: Mapping[str, Any], record: Sequence[Event], prices: Prices, waited: Waited | None = None
) -> list[Row]:
    """The rows of a run, from the record of its end and its events. A stage that runs twice is two tasks."""
    waited = waited or Waited()
    about = (run, str(end.get("project", "")), str(end.get("pipeline", "")))
    number = int(end.get("number", 1))
    results = [event.body.get("result", {}) for event in record if event.stage == "evaluate"]
    evaluation = next((str(result["evaluation"]) for result in results if "evaluation" in result), None)
    tasks: dict[tuple[str, str], list[Event]] = {}
    for event in sorted(record, key=lambda event: (event.attempt, event.event in ENDED)):
        if is_of_task(event):
            tasks.setdefault((event.stage, str(event.body.get("request_digest", ""))), []).append(event)

    rows = []
    for attempts in tasks.values():
        first, last = attempts[0], attempts[-1]
        result: dict[str, Any] = last.body.get("result", {})
        seconds, ended = seconds_of(last), last.event in ENDED
        began = float(last.body["at"]) - seconds
        as_of = str(result.get("as_of", "")) if last.stage == "snapshot" else ""
        queue: float | None = None
        if last.stage in waited.tasks:
            queue = float(first.body["at"]) - seconds_of(first) - waited.tasks[last.stage]
        row = Row(
            *about,
            stage=last.stage,
            state=last.event if ended else "killed",
            began=began,
            seconds=seconds,
            attempts=len({event.attempt for event in attempts}),
            # KFP began the task later if the run was tried again: then nobody knows how long it waited at first.
            queue_seconds=queue if queue is not None and queue >= 0 else None,
            rows_in=_count(result.get("rows")),
            rows_rejected=_count(result["rejected_rows"]) or 0 if "rejected_rows" in result else None,
            data_age_hours=(began - datetime.fromisoformat(as_of).timestamp()) / 3600 if as_of else None,
            cost=prices.cost(seconds, str(last.body.get("machine", ""))) if ended else None,
            end=number,
            verdict=result.get("verdict") or None,
            decision=result.get("decision") or None,
            evaluation=evaluation if result.get("decision") else None,
            error=last.body.get("error") or None,
            gpu_percent=last.body.get(GPU_PERCENT),
        )
        rows.append(row)

    costs = [row.cost for row in rows]
    snapshots = [row.began for row in rows if row.stage == "snapshot" and row.state == "finished"]
    approvals = [row.began + row.seconds for row in rows if row.stage == "register" and row.decision == "approved"]
    whole = Row(
        *about,
        stage="",
        state=str(end["state"]),
        began=float(end.get("began") or end.get("recorded") or 0.0),
        seconds=float(end["seconds"]),
        attempts=1,
        queue_seconds=waited.run,
        end=number,
        cost=sum(cost for cost in costs if cost is not None) if costs and None not in costs else None,
        data_to_model_seconds=max(approvals) - min(snapshots) if snapshots and approvals else None,
        error=str(end.get("error", "")) or None,
    )
    return [whole, *rows]


def _count(rows: Any) -> int | None:
    """A number of rows, given as such or by table."""
    if isinstance(rows, Mapping):
        return sum(rows.values()) if rows else None
    return rows if isinstance(rows, int) else None
