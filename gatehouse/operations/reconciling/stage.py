"""The stage that looks after earlier runs: it reports their ends, removes leftovers, and reports late schedules."""

import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gatehouse.operations.alerting.notice import Form, When, is_wanted
from gatehouse.runtime.variables import ENDPOINT
from gatehouse.store.run import end_name, end_number, recorded_runs
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.operations.reconciling.unreported import Unreported

_DAYS = 30.0
_NEWS_SECONDS = 24 * 3600.0
"""Ends that are older than this are recorded but not posted."""


class ReconcileRequest(StageModel):
    """Which runs and schedules are checked, and who gets notices.

    `owners` are by stage name; under "" is the owner of all other stages. A run on another machine counts as ended
    after `quiet_hours` without a sign of life.
    """

    project: str
    pipelines: tuple[str, ...]
    schedules: dict[str, dict[str, Any]] = Field({})
    when: When = "never"
    form: Form = "generic"
    owners: dict[str, str] = Field({})
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
        writes="ends of runs, the table of operations, MLflow, the webhook",
        why="Finds what ended since it looked last; an end is recorded once, and told once.",
    ),
)
def reconcile(request: ReconcileRequest, store: ArtifactStore) -> ReconcileResult:
    """Compare KFP's list of runs with the records in the store; report and clean up what ended unreported.

    A schedule is late if no run has succeeded within its `sla_hours` since it was due. Each due time is reported once.

    Without `GATEHOUSE_KFP_ENDPOINT` there is no list. Then only the records are used, with the processes of this
    machine and long silence as signs of an end. Raises KfpError if KFP is set but does not answer, because ended runs
    are unknown then.
    """
    from gatehouse.kfp_api.client import KfpApi
    from gatehouse.operations.metrics.table import Waited, read, update
    from gatehouse.operations.reconciling.lateness import late_schedules, post_late
    from gatehouse.operations.reconciling.unreported import ended_by_their_record, ended_in_kfp
    from gatehouse.store.collection import store_time
    from gatehouse.store.leases import remove_lapsed

    records = recorded_runs(store)
    active: frozenset[str] | None = None
    waited: dict[str, Waited] = {}
    candidates: dict[str, Unreported] = {}
    if os.environ.get(ENDPOINT):
        api = KfpApi.connect()
        runs = list(api.runs(since=datetime.now(UTC) - timedelta(days=_DAYS)))
        active = frozenset(run.id for run in runs if not run.ended)
        for run in runs:
            began = next((since for state, since in run.history if state == "RUNNING"), None)
            # Of a stage with several tasks nobody knows which one waited.
            tasks = {
                name.replace("-", "_"): since.timestamp()
                for name, since in run.tasks.items()
                if f"{name}-2" not in run.tasks
            }
            waited[run.id] = Waited(None if began is None else (began - run.created_at).total_seconds(), tasks)
        for ended in ended_in_kfp(api, runs, records, request.project, request.pipelines):
            candidates[ended.run] = ended
    for ended in ended_by_their_record(store, records, active, request.project, request.quiet_hours):
        candidates.setdefault(ended.run, ended)

    unreported = [run_id for run_id, ended in candidates.items() if _report(store, ended, request)]
    for run_id in unreported:
        names = records.setdefault(run_id, set())
        names.add(end_name(end_number(names) + 1))
    counted = update(store, waited=waited, recorded=records)

    rows = read(store) if request.schedules else []
    late = late_schedules(store, rows, request.project, request.schedules, time.time())
    if request.when != "never":
        for schedule in late:
            post_late(store, request.project, schedule, request.owners, request.form)
    # Locks and renewed leases protect what living processes hold. The checkpoints of a job stay, because the next run
    # resumes from them; a job object on a cluster is deleted with its launcher's pod, or at its own deadline.
    removed = store.sweep() + remove_lapsed(store.objects, store_time(store.objects))
    return ReconcileResult(
        unreported=tuple(unreported),
        removed=removed,
        warnings=tuple(schedule.message for schedule in late),
        summary=f"{len(unreported)} runs ended unreported, {len(late)} schedules are late, "
        f"{removed} leftovers removed, {counted} runs counted",
    )


def _report(store: ArtifactStore, ended: "Unreported", request: ReconcileRequest) -> bool:
    """Record the end of a run, also in MLflow, and post it if it is recent; False if it was recorded before."""
    from gatehouse.operations.ending.notice import post_end
    from gatehouse.operations.ending.outcome import outcome_in_kfp, record_end, run_outcome
    from gatehouse.operations.reconciling.unreported import KILLED
    from gatehouse.tracking.pipeline_runs import close_run, was_stopped

    about = {"project": request.project, "pipeline": ended.pipeline or "a pipeline"}
    outcome = (run_outcome if ended.state == KILLED else outcome_in_kfp)(store, ended.run, ended.state)
    if not record_end(store, ended.run, outcome, "reconcile", **about):
        return False
    close_run(store, ended.run, killed=was_stopped(store, ended.run))
    recent = time.time() - ended.ended < _NEWS_SECONDS
    if recent and is_wanted(request.when, failure=outcome.state != "succeeded", warning=outcome.warns):
        post_end(store, ended.run, outcome, about, request.owners, request.form)
    return True
