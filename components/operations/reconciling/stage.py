"""The stage that guarantees ends: it reports and cleans what ended unreported, and tells of schedules that are late."""

import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gatehouse.components.alerting.notice import Form, When
from gatehouse.components.artifacts.declaration import Effects, Resources
from gatehouse.components.artifacts.run import end_name, end_number, recorded_runs
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.kfp_api.connection import ENDPOINT

if TYPE_CHECKING:
    from gatehouse.components.kfp_api.answers import Run
    from gatehouse.components.kfp_api.client import KfpApi
    from gatehouse.components.operations.metrics.rows import Waited
    from gatehouse.components.operations.reconciling.unreported import Unreported

_DAYS = 30.0
_NEWS_SECONDS = 24 * 3600.0
"""What ended longer ago is recorded and not told: it is no news."""


class ReconcileRequest(StageModel):
    """Whose runs and schedules are looked after, and who is told.

    Attributes:
        project: The project.
        pipelines: Names of its pipelines.
        schedules: The schedules that may not be late, by name, each as project.yaml has it.
        when: Which ends the webhook is told: `fail`, `warn`, `always` or `never`.
        form: What the webhook takes: `generic`, `slack` or `teams`.
        owners: Who answers for a stage, by its name; under "" who answers for every other.
        quiet_hours: So long after its last sign a run of another machine counts as ended.
    """

    project: str
    pipelines: tuple[str, ...]
    schedules: dict[str, dict[str, Any]] = Field({})
    when: When = "never"
    form: Form = "generic"
    owners: dict[str, str] = Field({})
    quiet_hours: float = 48.0


class ReconcileResult(StageModel):
    """Runs that ended unreported, how much was removed, all of it in a line, and the schedules that are late."""

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
    """Hold KFP's list of runs against the records in the store; report and clean what ended unreported.

    A schedule is late where no run since it was due ended well within its `sla_hours`. It is told once for each time
    that it was due.

    Without `GATEHOUSE_KFP_ENDPOINT` there is no list: then the records alone tell, by processes of this machine and by
    long silence.

    Raises:
        KfpError: if KFP is named and does not answer: then nobody knows what ended.
    """
    from gatehouse.components.operations.metrics.exposition import ENDPOINT as METRICS
    from gatehouse.components.operations.metrics.exposition import push
    from gatehouse.components.operations.metrics.table import read, update
    from gatehouse.components.operations.reconciling.cleaning import clean
    from gatehouse.components.operations.reconciling.lateness import late_schedules, tell_late
    from gatehouse.components.operations.reconciling.unreported import ended_by_their_record, ended_in_kfp

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
    from gatehouse.components.kfp_api.client import KfpApi

    return KfpApi.connect()


def _waited(run: "Run") -> "Waited":
    """How long a run waited, and since when each stage did that is one task alone: that has its name."""
    from gatehouse.components.operations.metrics.rows import Waited

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
    """Record the end of a run, end it in MLflow, and tell it where it is news; False where that was on record."""
    from gatehouse.components.operations.ending.outcome import record_end, run_outcome
    from gatehouse.components.operations.ending.telling import is_wanted, tell_end
    from gatehouse.components.tracking.stages import close_run

    about = {"project": request.project, "pipeline": ended.pipeline or "a pipeline"}
    outcome = run_outcome(store, ended.run, ended.said)
    if not record_end(store, ended.run, outcome, "reconcile", **about):
        return False
    close_run(store, ended.run)
    if is_wanted(request.when, outcome) and time.time() - ended.ended < _NEWS_SECONDS:
        tell_end(store, ended.run, outcome, about, request.owners, request.form)
    return True
