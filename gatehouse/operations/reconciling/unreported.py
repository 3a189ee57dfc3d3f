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
"""Said of a run whose process is gone, or that gave no sign of life for a long time."""
_GRACE = timedelta(minutes=10)
"""Time for the exit handler to report an end itself."""


@dataclass(frozen=True)
class Unreported:
    """A run that ended without a recorded end.

    Attributes:
        run: Its id.
        pipeline: Its pipeline; empty if its record does not say.
        said: KFP's status, or `KILLED` if its process is gone.
        ended: When, in seconds since 1970.
    """

    run: str
    pipeline: str
    said: str
    ended: float


def ended_in_kfp(
    api: KfpApi, listed: Iterable[Run], known: Mapping[str, set[str]], project: str, pipelines: Iterable[str]
) -> Iterator[Unreported]:
    """The runs that ended according to KFP's list and have no recorded end here.

    Args:
        api: The API.
        listed: Its runs.
        known: The records of every run.
        project: The project.
        pipelines: Names of its pipelines.
    """
    named = {name: f"{project}-{name}" for name in pipelines}
    ids = {found.id: name for name, each in named.items() if (found := api.find_pipeline(each)) is not None}
    now = datetime.now(UTC)
    for run in listed:
        by_name = next((name for name, each in named.items() if run.name.startswith(each)), "")
        pipeline = ids.get(run.pipeline, "") if run.pipeline else by_name
        late = run.finished_at is not None and now - run.finished_at > _GRACE
        # A run that was tried again in KFP has several ends.
        ends = sum(state in ENDED for state, _ in run.history) or 1
        if pipeline and run.ended and late and end_number(known.get(run.id, ())) < ends:
            assert run.finished_at is not None
            yield Unreported(run.id, pipeline, run.state, run.finished_at.timestamp())


def ended_by_their_record(
    store: ArtifactStore, known: Mapping[str, set[str]], living: frozenset[str] | None, project: str, quiet_hours: float
) -> Iterator[Unreported]:
    """Runs of a project whose process no longer exists on this machine, and runs elsewhere with a long silence.

    Args:
        store: The artifact store with the records.
        known: The records of every run.
        living: Runs that are active according to KFP: their silence is no end. None if KFP is not asked. In that case a
            run without a project counts as one of this project; otherwise KFP's list says which project it belongs to.
        project: The project; runs of other projects are ignored.
        quiet_hours: Hours after its last event after which a run on another machine counts as ended.
    """
    for run, names in known.items():
        if END in names or run in (living or ()) or run == os.environ.get(RUN_ID, ""):
            continue
        plan = read_record(store.objects, f"runs/{run}/{PLAN}") if PLAN in names else None
        plan = plan or {}
        if plan.get("project", project if living is None else "") != project:
            continue
        last = max((float(event.body["at"]) for _, event in events(store, run)), default=0.0)
        if plan.get("host") == here():
            gone = not _lives(str(plan.get("process", "")))
        else:
            gone = 0 < last < time.time() - 3600 * quiet_hours
        if gone:
            yield Unreported(run, str(plan.get("pipeline", "")), KILLED, last or time.time())


def _lives(process: str) -> bool:
    """Whether a process of this machine, given by id and start time, still exists."""
    pid, _, started = process.partition(":")
    return pid.isdigit() and start_time(int(pid)) == started
