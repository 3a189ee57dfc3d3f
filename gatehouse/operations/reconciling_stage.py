"""The stage that looks after earlier runs: it reports ends that nobody reported, and late schedules; it cleans up.

A run without a recorded end is over by KFP's list, by a dead process, or after long silence. A schedule is late if no
run has succeeded within the allowed hours since it was due.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import Field

from gatehouse.configuration.schedule import Schedule
from gatehouse.kfp_api.answers import ENDED, Run
from gatehouse.operations.announcing import announce_ledger
from gatehouse.operations.ending_stage import announce_end, outcome_in_kfp, page_in_kfp, record_end, run_outcome
from gatehouse.operations.metrics import Row, Waited, read, update
from gatehouse.operations.notice import Form, When
from gatehouse.operations.outbox import Outbox
from gatehouse.runtime.process import here, start_time
from gatehouse.runtime.variables import ENDPOINT
from gatehouse.store.announcement import Announcement, announce, id_of
from gatehouse.store.canonical import canonical_json, sha256_bytes
from gatehouse.store.records import read_record
from gatehouse.store.run import END, RUN_ID, end_name, end_number, events, recorded_runs
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

PLAN = "plan.json"
KILLED = "KILLED"
"""State of a run whose process is gone, or that gave no sign of life for a long time."""
SEEN = "operations/schedules"
_GRACE = timedelta(minutes=10)
"""Time for the exit handler to report an end itself."""
_DAYS = 30.0
_WINDOWS = (timedelta(hours=1), timedelta(days=1), timedelta(days=8), timedelta(days=32), timedelta(days=370))


class ReconcileRequest(StageModel):
    """Which runs and schedules are checked, and who gets notices.

    `owners` are by stage name; under "" is the owner of all other stages. `events` are the destinations of the project,
    which also hear of the ledger of its model. A run on another machine counts as ended
    after `quiet_hours` without a sign of life.
    """

    project: str
    pipelines: tuple[str, ...]
    schedules: dict[str, dict[str, Any]] = Field({})
    when: When = "never"
    form: Form = "generic"
    owners: dict[str, str] = Field({})
    events: dict[str, dict[str, Any]] = Field({})
    model_name: str = ""
    quiet_hours: float = 48.0


class ReconcileResult(StageModel):
    """The runs that ended unreported, how much was removed, a one-line summary, and the late schedules."""

    unreported: tuple[str, ...]
    removed: int
    summary: str
    warnings: tuple[str, ...] = ()


@stage(
    "reconcile",
    advisory=True,
    title="Look after earlier runs",
    effects=Effects(
        reads="KFP's list of runs, run records, the clock",
        writes="ends of runs, the table of operations, MLflow, webhooks",
        why="Finds what ended since it looked last; an end is recorded once, and told once.",
    ),
)
def reconcile(request: ReconcileRequest, store: ArtifactStore) -> ReconcileResult:
    """Compare KFP's list of runs with the records in the store; report and clean up what ended unreported.

    A schedule is late if no run has succeeded within its `sla_hours` after it was due. Each due time is reported once.

    Without `GATEHOUSE_KFP_ENDPOINT` there is no list. Then only the records are used, with the processes of this
    machine and long silence as signs of an end. Raises KfpError if KFP is set but does not answer, because ended runs
    are unknown then.
    """
    from gatehouse.kfp_api.client import KfpApi
    from gatehouse.tracking.place import is_shown_later
    from gatehouse.tracking.sending import send_rest

    records = recorded_runs(store)
    active: frozenset[str] | None = None
    waited: dict[str, Waited] = {}
    candidates: dict[str, Unreported] = {}
    if os.environ.get(ENDPOINT):
        api = KfpApi.connect()
        runs = list(api.runs(since=datetime.now(UTC) - timedelta(days=_DAYS)))
        active = frozenset(run.id for run in runs if not run.ended)
        waited = {run.id: _waited(run) for run in runs}
        names = {pipeline: f"{request.project}-{pipeline}" for pipeline in request.pipelines}
        known = {entry.id: pipeline for pipeline, name in names.items() if (entry := api.find_pipeline(name))}
        candidates = {ended.run: ended for ended in ended_in_kfp(runs, records, names, known)}
    for ended in ended_by_their_record(store, records, active, request.project, request.quiet_hours):
        candidates.setdefault(ended.run, ended)

    unreported = [run_id for run_id, ended in candidates.items() if _report(store, ended, request)]
    for run_id in unreported:
        recorded = records.setdefault(run_id, set())
        recorded.add(end_name(end_number(recorded) + 1))
    if not is_shown_later():
        send_rest(store)  # Metrics of jobs that ended while MLflow was away.
    counted = update(store, waited=waited, recorded=records)

    outbox = Outbox(store, request.project, request.events, request.when, request.form)
    rows = read(store) if request.schedules or outbox.destinations else []
    late = late_schedules(store, rows, request.project, request.schedules, time.time())
    if outbox.destinations:
        for schedule in late:
            _announce_late(store, request.project, schedule, request.owners)
        # Who recorded an end may have been killed before it announced it.
        since, announced = time.time() - 86_400 * outbox.days, {key.rpartition("_")[2] for key in outbox.announced()}
        recent = (row for row in rows if row.project == request.project and not row.stage)
        recent = (row for row in recent if row.began + row.seconds >= since)
        missed = [row.run for row in recent if f"{id_of(f'end/{row.run}/{row.end}')}.json" not in announced]
        for run_id in {*unreported, *missed}:
            announce_end(store, run_id, request.owners)
        announce_ledger(store, request.project, request.model_name, outbox.days)
        outbox.send()
    # Locks protect what living processes hold. The checkpoints of a job stay, because the next run resumes from them; a
    # job object on a cluster is deleted with its launcher's pod, or at its own deadline.
    removed = store.sweep()
    return ReconcileResult(
        unreported=tuple(unreported),
        removed=removed,
        warnings=tuple(schedule.message for schedule in late),
        summary=f"{len(unreported)} runs ended unreported, {len(late)} schedules are late, "
        f"{removed} leftovers removed, {counted} runs counted",
    )


@dataclass(frozen=True)
class Unreported:
    """A run without a recorded end: its pipeline (empty if unknown), KFP's state or `KILLED`, and when it ended.

    `ended` is in seconds since 1970.
    """

    run: str
    pipeline: str
    state: str
    ended: float


def ended_in_kfp(
    runs: Iterable[Run], records: Mapping[str, set[str]], names: Mapping[str, str], known: Mapping[str, str]
) -> Iterator[Unreported]:
    """The runs of a project that ended in KFP's list more often than in `records` (names of records by run).

    `names` has the name in KFP of each of its pipelines, `known` the pipeline by its id in KFP.
    """
    now = datetime.now(UTC)
    for run in runs:
        by_name = next((pipeline for pipeline, name in names.items() if run.name.startswith(name)), "")
        pipeline = known.get(run.pipeline, "") if run.pipeline else by_name
        if not (pipeline and run.ended) or run.finished_at is None or now - run.finished_at <= _GRACE:
            continue
        # A run that was tried again in KFP has several ends.
        ends = sum(state in ENDED for state, _ in run.history) or 1
        if end_number(records.get(run.id, ())) < ends:
            yield Unreported(run.id, pipeline, run.state, run.finished_at.timestamp())


def ended_by_their_record(
    store: ArtifactStore,
    records: Mapping[str, set[str]],
    active: frozenset[str] | None,
    project: str,
    quiet_hours: float,
) -> Iterator[Unreported]:
    """Runs of a project whose process no longer exists on this machine, and runs elsewhere with a long silence.

    The silence of runs that are `active` according to KFP is no end. If KFP is not asked (None), a run without a
    project counts as one of this project; otherwise KFP's list says which project it belongs to. A run on another
    machine counts as ended `quiet_hours` after its last event.
    """
    for run, names in records.items():
        if END in names or run in (active or ()) or run == os.environ.get(RUN_ID, ""):
            continue
        plan = (read_record(store.objects, f"runs/{run}/{PLAN}") if PLAN in names else None) or {}
        if plan.get("project", project if active is None else "") != project:
            continue
        last = max((float(event.body["at"]) for _, event in events(store, run)), default=0.0)
        if plan.get("host") == here():
            pid, _, started = str(plan.get("process", "")).partition(":")
            over = not (pid.isdigit() and start_time(int(pid)) == started)
        else:
            over = 0 < last < time.time() - 3600 * quiet_hours
        if over:
            yield Unreported(run, str(plan.get("pipeline", "")), KILLED, last or time.time())


def _waited(run: Run) -> Waited:
    began = next((since for state, since in run.history if state == "RUNNING"), None)
    # KFP does not say which task of a component with several tasks waited.
    tasks = {
        name.replace("-", "_"): since.timestamp() for name, since in run.tasks.items() if f"{name}-2" not in run.tasks
    }
    return Waited(None if began is None else (began - run.created_at).total_seconds(), tasks)


def _report(store: ArtifactStore, ended: Unreported, request: ReconcileRequest) -> bool:
    """Record the end of a run, also in MLflow; False if it was recorded before."""
    from gatehouse.tracking.projection import close_run, was_stopped

    about = {"project": request.project, "pipeline": ended.pipeline or "a pipeline"}
    outcome = (run_outcome if ended.state == KILLED else outcome_in_kfp)(store, ended.run, ended.state)
    if not record_end(store, ended.run, replace(outcome, ended=ended.ended), "reconcile", **about):
        return False
    close_run(store, ended.run, killed=was_stopped(store, ended.run))
    return True


@dataclass(frozen=True)
class Late:
    """A schedule that is late: its pipeline was `due` and had to succeed within some `hours`."""

    schedule: str
    pipeline: str
    due: datetime
    hours: float

    @property
    def message(self) -> str:
        """The problem in one sentence."""
        return (
            f"schedule {self.schedule}: {self.pipeline} was due at {self.due:%Y-%m-%d %H:%M} UTC, "
            f"and no run has ended well within {self.hours:g} h"
        )


def late_schedules(
    store: ArtifactStore, rows: Iterable[Row], project: str, schedules: Mapping[str, Mapping[str, Any]], now: float
) -> list[Late]:
    """The schedules (as in project.yaml, by name) that are late at `now`, in seconds since 1970.

    A schedule counts from when it was first seen here, which the store records, so that a new schedule is not late for
    earlier times. A later success does not make up for a due time: the schedule is late until it is due again.
    """
    moment = datetime.fromtimestamp(now, UTC)
    successes = [row for row in rows if (row.project, row.stage, row.state) == (project, "", "succeeded")]
    late = []
    for name, body in sorted(schedules.items()):
        schedule = Schedule.model_validate(body)
        if schedule.sla_hours is None or not schedule.enabled:
            continue
        pipeline, since = schedule.pipeline or name, _first_seen(store, project, name, body, moment)
        due = last_due(schedule, since, moment - timedelta(hours=schedule.sla_hours))
        if due is None:
            continue
        # Intervals count from when the schedule was first seen, which its own first run does after that run began.
        earliest = (due - (schedule.interval or timedelta())).timestamp()
        latest = due.timestamp() + 3600 * schedule.sla_hours
        in_time = [row for row in successes if row.began >= earliest and row.began + row.seconds <= latest]
        if not any(row.pipeline == pipeline for row in in_time):
            late.append(Late(name, pipeline, due.astimezone(UTC), schedule.sla_hours))
    return late


def last_due(schedule: Schedule, since: datetime, until: datetime) -> datetime | None:
    """The last time in (since, until] at which a schedule was due; None if there is none."""
    for window in _WINDOWS:
        due = schedule.following(max(since, until - window), since)
        if due is not None and due <= until:
            while (following := schedule.following(due, since)) is not None and following <= until:
                due = following
            return due
    return None


def _announce_late(store: ArtifactStore, project: str, late: Late, owners: Mapping[str, str]) -> None:
    """Announce a late schedule, once for each time that it was due."""
    about = {"schedule": late.schedule, "pipeline": late.pipeline, "due": late.due.isoformat()}
    identity = canonical_json([project, about])
    seen = f"operations/late/{sha256_bytes(identity.encode())}.json"
    store.record(seen, {"at": time.time()})
    announcement = Announcement(
        type="schedule.late",
        key=identity,
        at=float((read_record(store.objects, seen) or {}).get("at", 0)),
        subject=late.schedule,
        what=late.message,
        title=f"Gatehouse, {project}: schedule {late.schedule} is late",
        tone="bad",
        lines=[late.message],
        facts={**about, "owner": owners.get("", "")},
        links={"KFP": page_in_kfp("recurringruns")},
        about=about | {"state": "late"},
    )
    announce(store, project, announcement)


def _first_seen(store: ArtifactStore, project: str, name: str, body: Mapping[str, Any], now: datetime) -> datetime:
    """When this schedule, with this definition, was first seen here."""
    key = f"{SEEN}/{project}-{name}-{sha256_bytes(canonical_json(dict(body)).encode())[:12]}.json"
    if store.record(key, {"schedule": name, "since": now.isoformat()}):
        return now
    recorded = read_record(store.objects, key) or {}
    return datetime.fromisoformat(str(recorded["since"]))
