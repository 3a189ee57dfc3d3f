"""The stage that handles unreported ends: it reports runs, cleans up after them, and reports late schedules."""

import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gatehouse.kfp_api.variables import ENDPOINT
from gatehouse.operations.alerting.notice import Form, When
from gatehouse.store.declaration import Effects, Resources
from gatehouse.store.run import end_name, end_number, recorded_runs
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.kfp_api.answers import Run
    from gatehouse.kfp_api.client import KfpApi
    from gatehouse.operations.metrics.rows import Waited
    from gatehouse.operations.reconciling.unreported import Unreported

_DAYS = 30.0
_NEWS_SECONDS = 24 * 3600.0
"""Ends that are older than this are recorded but not reported."""


class ReconcileRequest(StageModel):
    """Which runs and schedules are checked, and who gets notices.

    Attributes:
        project: The project.
        pipelines: Names of its pipelines.
        schedules: The schedules to check for lateness, by name, as in project.yaml.
        when: Which ends are sent to the webhook: `fail`, `warn`, `always` or `never`.
        form: Format of the webhook: `generic`, `slack` or `teams`.
        owners: Owner of each stage, by stage name; under "" the owner of all other stages.
        quiet_hours: Hours without a sign of life after which a run on another machine counts as ended.
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
    title="Look after earlier runs",
    effects=Effects(
        reads="KFP's list of runs, run records, the clock",
        writes="ends of runs, the table of operations, MLflow, the webhook",
        why="Finds what ended since it looked last; an end is recorded once, and told once.",
    ),
    resources=Resources(cpu="500m", memory="1G", minutes=15),
)
def reconcile(request: ReconcileRequest, store: ArtifactStore) -> ReconcileResult:
    """Compare KFP's list of runs with the records in the store; report and clean up what ended unreported.

    A schedule is late if no run has succeeded within its `sla_hours` since it was due. Each due time is reported once.

    Without `GATEHOUSE_KFP_ENDPOINT` there is no list. Then only the records are used, with the processes of this
    machine and long silence as signs of an end.

    Raises:
        KfpError: if KFP is set but does not answer, because ended runs are unknown then.
    """
    from gatehouse.operations.metrics.exposition import ENDPOINT as METRICS
    from gatehouse.operations.metrics.exposition import push
    from gatehouse.operations.metrics.table import read, update
    from gatehouse.operations.reconciling.cleaning import clean
    from gatehouse.operations.reconciling.lateness import late_schedules, tell_late
    from gatehouse.operations.reconciling.unreported import ended_by_their_record, ended_in_kfp

    api, known = _api(), recorded_runs(store)
    living: frozenset[str] | None = None
    waited: dict[str, Waited] = {}
    found: list[Unreported] = []
    if api is not None:
        listed = list(api.runs(since=datetime.now(UTC) - timedelta(days=_DAYS)))
        living = frozenset(run.id for run in listed if not run.ended)
        waited = {run.id: _waited(run) for run in listed}
        found += ended_in_kfp(api, listed, known, request.project, request.pipelines)
    heard = {each.run for each in found}
    found += [
        one
        for one in ended_by_their_record(store, known, living, request.project, request.quiet_hours)
        if one.run not in heard
    ]
    found = [each for each in found if _report(store, each, request)]
    for each in found:
        names = known.setdefault(each.run, set())
        names.add(end_name(end_number(names) + 1))
    counted = update(store, waited=waited, recorded=known)
    pushing = bool(os.environ.get(METRICS))
    rows = read(store) if pushing or request.schedules else []
    late = late_schedules(store, rows, request.project, request.schedules, time.time())
    if request.when != "never":
        for one in late:
            tell_late(store, request.project, one, request.owners, request.form)
    removed = clean(store)
    pushed = push(request.project, rows) if pushing else ""
    summary = [
        f"{len(found)} runs ended unreported",
        f"{len(late)} schedules are late",
        f"{removed} leftovers removed",
        f"{counted} runs counted",
    ]
    return ReconcileResult(
        unreported=tuple(each.run for each in found),
        removed=removed,
        warnings=tuple(filter(None, [*(one.said for one in late), pushed])),
        summary=", ".join(summary),
    )


def _api() -> "KfpApi | None":
    if not os.environ.get(ENDPOINT):
        return None
    from gatehouse.kfp_api.client import KfpApi

    return KfpApi.connect()


def _waited(run: "Run") -> "Waited":
    """How long a run waited, and since when each stage waited; a stage with several tasks is left out."""
    from gatehouse.operations.metrics.rows import Waited

    began = next((since for state, since in run.history if state == "RUNNING"), None)
    return Waited(
        None if began is None else (began - run.created_at).total_seconds(),
        {
            name.replace("-", "_"): since.timestamp()
            for name, since in run.tasks.items()
            if f"{name}-2" not in run.tasks
        },
    )


def _report(store: ArtifactStore, ended: "Unreported", request: ReconcileRequest) -> bool:
    """Record the end of a run, also in MLflow, and report it if it is recent; False if it was recorded before."""
    from gatehouse.operations.ending.outcome import outcome_in_kfp, record_end, run_outcome
    from gatehouse.operations.ending.telling import is_wanted, tell_end
    from gatehouse.operations.reconciling.unreported import KILLED
    from gatehouse.tracking.later import close_run, was_stopped

    about = {"project": request.project, "pipeline": ended.pipeline or "a pipeline"}
    outcome = (run_outcome if ended.said == KILLED else outcome_in_kfp)(store, ended.run, ended.said)
    if not record_end(store, ended.run, outcome, "reconcile", **about):
        return False
    close_run(store, ended.run, killed=was_stopped(store, ended.run))
    if is_wanted(request.when, outcome) and time.time() - ended.ended < _NEWS_SECONDS:
        tell_end(store, ended.run, outcome, about, request.owners, request.form)
    return True
