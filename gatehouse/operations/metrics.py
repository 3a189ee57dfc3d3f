"""The operations table, its totals for people and for Prometheus, and the dashboard that shows them.

The table has one row for each task of a run that ended, and one for the whole run. It is kept in Parquet files
`<store>/operations/stages/<n>.parquet`, n from 1, which are only added, each with the runs that ended since the
previous file. If another process takes a number first, the missing runs are computed again, so no end of a run is in
the table twice. Values that were not measured are null, never 0.
"""

import collections
import io
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gatehouse.operations.ending_stage import ENDED, is_of_task, seconds_of
from gatehouse.reports.charts import STYLES, Axis, Series
from gatehouse.reports.format import duration, percent
from gatehouse.reports.page import Cell, render
from gatehouse.store.run import Event, end_number, end_of, events, recorded_runs
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.machine import GPU_PERCENT
from gatehouse.tracking.provenance import Prices, prices_here

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "operations/stages"
_KINDS = {"str": "string", "float": "double", "int": "int64"}
GOOD = ("finished", "hit", "succeeded")
_COUNTERS = {
    "runs": ("runs", "Runs of a pipeline, or tasks of a stage, that ended."),
    "runs_good": ("good", "Of these, the ones that succeeded."),
    "runs_from_memo": ("memo", "Of these, the ones whose result came from the memo."),
    "retries": ("retries", "Attempts beyond the first."),
    "cost": ("cost", "Total cost."),
}
"""By the name of a metric, the field of `Totals` that it shows, and its description."""
_GAUGES = {
    "seconds_median": ("median_seconds", "Median duration of those that did work."),
    "queue_seconds_median": ("queue_seconds", "Median time that they waited before they began."),
    "last_ended_timestamp_seconds": ("last_ended", "When the last one ended."),
    "last_good": ("last_good", "Whether the last one succeeded."),
    "rows_in": ("rows_in", "Input rows of the last one."),
    "rows_rejected": ("rows_rejected", "Rows that the last one set aside."),
    "data_age_hours": ("data_age_hours", "Age of the newest data when the last one began."),
    "data_to_model_seconds_median": ("data_to_model_seconds", "From the start of the snapshot to an approved model."),
    "gpu_percent_median": ("gpu_percent", "Mean utilisation of the GPUs that trained."),
}
NOT_MEASURED = "not measured"
_FAILURES, _DOTTED = 20, 60


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


@dataclass(frozen=True)
class Totals:
    """Totals of several runs of a pipeline, or of several tasks of a stage. None means not measured.

    Durations are of the tasks that worked, without results from the memo. `rows_in`, `rows_rejected` and
    `data_age_hours` are of the last task that has a value. `good` counts successes, `unknown` ends in a state of KFP
    that this release does not know, `memo` results from the memo, and `retries` the attempts beyond the first of each.
    Waiting, data to model and GPU are medians.
    """

    project: str
    pipeline: str
    stage: str
    runs: int
    good: int
    unknown: int
    memo: int
    retries: int
    last_state: str
    last_ended: float
    last_error: str | None
    median_seconds: float | None
    longest_seconds: float | None
    queue_seconds: float | None
    rows_in: int | None
    rows_rejected: int | None
    data_age_hours: float | None
    cost: float | None
    data_to_model_seconds: float | None
    gpu_percent: float | None

    @property
    def name(self) -> str:
        """The pipeline's name in KFP, because a store may hold several projects."""
        return f"{self.project}-{self.pipeline}"

    @property
    def success(self) -> float:
        """Share of successes among those whose end is known."""
        return self.good / max(1, self.runs - self.unknown)

    @property
    def last_good(self) -> bool:
        """Whether the last one succeeded."""
        return self.last_state in GOOD

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON."""
        return asdict(self) | {"success": self.success}


def totals(rows: Iterable[Row]) -> list[Totals]:
    """The totals of each pipeline, then of its stages in the order in which they first ran."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.began):
        groups.setdefault((row.project, row.pipeline, row.stage), []).append(row)
    return sorted(map(_total, groups.values()), key=lambda total: (total.name, bool(total.stage)))


def _total(rows: Sequence[Row]) -> Totals:
    def measured(name: str) -> list[Any]:
        return [value for row in rows if (value := getattr(row, name)) is not None]

    def median(values: Sequence[float]) -> float | None:
        return statistics.median(values) if values else None

    last = rows[-1]
    worked = [row.seconds for row in rows if row.state in GOOD and row.state != "hit"]
    costs = measured("cost")
    return Totals(
        project=last.project,
        pipeline=last.pipeline,
        stage=last.stage,
        runs=len(rows),
        good=sum(row.state in GOOD for row in rows),
        unknown=sum(row.state == "unknown" for row in rows),
        memo=sum(row.state == "hit" for row in rows),
        retries=sum(row.attempts - 1 for row in rows),
        last_state=last.state,
        last_ended=last.began + last.seconds,
        last_error=last.error,
        median_seconds=median(worked),
        longest_seconds=max(worked, default=None),
        queue_seconds=median(measured("queue_seconds")),
        rows_in=next(reversed(measured("rows_in")), None),
        rows_rejected=next(reversed(measured("rows_rejected")), None),
        data_age_hours=next(reversed(measured("data_age_hours")), None),
        cost=sum(costs) if len(costs) == len(rows) else None,
        data_to_model_seconds=median(measured("data_to_model_seconds")),
        gpu_percent=median(measured("gpu_percent")),
    )


def gate_outcomes(rows: Iterable[Row]) -> dict[str, int]:
    """How often each decision about a candidate was made, counted once per evaluation."""
    decisions = {
        (row.project, row.evaluation or row.run, row.decision)
        for row in rows
        if row.stage == "register" and row.decision
    }
    return dict(collections.Counter(decision for *_, decision in sorted(decisions)).most_common())


def exposition(rows: Iterable[Row], ages: Mapping[str, float], changes: Mapping[str, Mapping[str, int]]) -> str:
    """Rows of the table, and champions, in Prometheus' text format; a value that was not measured has no sample.

    By model, `ages` are the seconds since its champion was promoted, and `changes` how often champions were `promoted`
    and `rolled_back`.
    """
    from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

    disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus-client does not annotate it
    rows, registry, labels = list(rows), CollectorRegistry(), ("project", "pipeline", "stage")
    sums = totals(rows)
    for metrics, kind in ((_COUNTERS, Counter), (_GAUGES, Gauge)):
        for name, (total_field, description) in metrics.items():
            if measured := [total for total in sums if getattr(total, total_field) is not None]:
                metric = kind(f"gatehouse_{name}", description, labels, registry=registry)
                for total in measured:
                    metric.labels(total.project, total.pipeline, total.stage).inc(float(getattr(total, total_field)))
    decisions = Counter(
        "gatehouse_gate_decisions", "Decisions of the gate on candidates.", ("project", "decision"), registry=registry
    )
    for project in sorted({row.project for row in rows}):
        for decision, count in gate_outcomes(row for row in rows if row.project == project).items():
            decisions.labels(project, decision).inc(count)
    age = Gauge("gatehouse_champion_age_seconds", "Since the champion was promoted.", ("model",), registry=registry)
    changed = Counter("gatehouse_champion_changes", "Promotions and rollbacks.", ("model", "change"), registry=registry)
    for model, seconds in ages.items():
        age.labels(model).set(seconds)
    for model, counts in changes.items():
        for change, count in counts.items():
            changed.labels(model, change).inc(count)
    return generate_latest(registry).decode()


def page(
    rows: Sequence[Row],
    ages: Mapping[str, float],
    changes: Mapping[str, Mapping[str, int]],
    currency: str,
    days: float,
) -> str:
    """The dashboard of rows of the last `days` as HTML; `ages` and `changes` are those of `exposition`."""
    runs, tasks = [row for row in rows if not row.stage], [row for row in rows if row.stage]
    made = totals(rows)
    pipelines, stages = [total for total in made if not total.stage], [total for total in made if total.stage]
    failed = [row for row in reversed(tasks) if row.state not in (*GOOD, "tolerated")][:_FAILURES]
    states = collections.Counter((f"{row.project}-{row.pipeline} {row.state}", row.state) for row in runs)
    began = [row.began for row in runs]
    changed = {
        f"promotions and rollbacks of {model}": f"{of['promoted']:,} and {of['rolled_back']:,}"
        for model, of in changes.items()
    }
    return render(
        "operations.html",
        f"Operations of {', '.join(sorted({row.project for row in rows})) or 'this store'}",
        f"{len(runs):,} runs that ended in the last {days:g} days",
        runs=len(runs),
        tiles=_tiles(runs, ages, made) | changed,
        pipelines=pipelines,
        durations=_durations(runs),
        began=Axis.of("began", began, times=True),
        ends=[(name, float(count)) for (name, _), count in sorted(states.items())],
        bad_ends={name for name, state in states if state != "succeeded"},
        failed=failed,
        stages={pipeline.name: [total for total in stages if total.name == pipeline.name] for pipeline in pipelines},
        data=[total for total in stages if total.rows_in is not None],
        decisions=[(name, float(count)) for name, count in gate_outcomes(rows).items()],
        currency=currency,
        good=GOOD,
        span=span,
        moment_of=lambda seconds: time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds)),
    )


def _tiles(runs: Sequence[Row], champions: Mapping[str, float], made: Sequence[Totals]) -> dict[str, Any]:
    ended = [row for row in runs if row.state != "unknown"]
    good = sum(row.state == "succeeded" for row in runs)
    share = good / len(ended) if ended else None
    ready = next((total.data_to_model_seconds for total in made if total.data_to_model_seconds is not None), None)
    mark = "good" if share == 1 else "bad" if share is not None and share < 0.8 else ""
    ages = {f"age of the champion {model}": span(age) for model, age in champions.items()}
    return {
        "runs": len(runs),
        "ended well": NOT_MEASURED if share is None else Cell(percent(share), mark),
        "failed or stopped": len(ended) - good,
        "from data to an approved model": span(ready),
        **(ages or {"age of the champion": "none yet"}),
    }


def _durations(runs: Sequence[Row]) -> list[list[Series]]:
    """Start and duration of the runs by pipeline, as many pipelines per chart as there are styles."""
    by_pipeline: dict[str, list[tuple[float, float]]] = {}
    for row in runs:
        by_pipeline.setdefault(f"{row.project}-{row.pipeline}", []).append((row.began, row.seconds))
    series = [
        Series(name, points, dots=points if len(points) <= _DOTTED else ())
        for name, points in sorted(by_pipeline.items())
    ]
    return [series[first : first + STYLES] for first in range(0, len(series), STYLES)]


def span(seconds: float | None) -> str:
    """A span of time, to the tenth of a second if it is short."""
    if seconds is None:
        return NOT_MEASURED
    return f"{seconds:.1f} s" if abs(seconds) < 60 else duration(seconds)
