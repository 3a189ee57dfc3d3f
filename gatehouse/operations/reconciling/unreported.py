"""Finds runs without a recorded end that are over: by KFP's list, a dead process, or long silence."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gatehouse.kfp_api.answers import ENDED, Run
from gatehouse.kfp_api.client import KfpApi
from gatehouse.runtime.process import here, start_time
from gatehouse.store.records import read_record
from gatehouse.store.run import END, RUN_ID, end_number, events
from gatehouse.store.store import ArtifactStore

PLAN = "plan.json"
KILLED = "KILLED"
"""State of a run whose process is gone, or that gave no sign of life for a long time."""
_GRACE = timedelta(minutes=10)
"""Time for the exit handler to report an end itself."""


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
    api: KfpApi, runs: Iterable[Run], records: Mapping[str, set[str]], project: str, pipelines: Iterable[str]
) -> Iterator[Unreported]:
    """The runs of a project that ended in KFP's list more often than in `records` (names of records by run)."""
    names = {pipeline: f"{project}-{pipeline}" for pipeline in pipelines}
    ids = {entry.id: pipeline for pipeline, name in names.items() if (entry := api.find_pipeline(name)) is not None}
    now = datetime.now(UTC)
    for run in runs:
        by_name = next((pipeline for pipeline, name in names.items() if run.name.startswith(name)), "")
        pipeline = ids.get(run.pipeline, "") if run.pipeline else by_name
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
