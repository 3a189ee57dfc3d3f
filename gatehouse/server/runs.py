"""Submitted runs: each in a separate process that outlives the server; their state is read from the run record."""

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gatehouse.errors import ConfigurationError, MissingArtifactError
from gatehouse.kfp.driver import PLAN
from gatehouse.kfp.local_run import LocalRun, PlannedTask, new_run_id, run_pipeline
from gatehouse.runtime.process import start_time
from gatehouse.server.problems import ProblemError
from gatehouse.server.tokens import Scope
from gatehouse.store.records import USER, author, read_record
from gatehouse.store.run import REASON, events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.pipeline_runs import show_apart

SUBMITTED, PROCESS, ENDED = "submitted.json", "process.json", "ended.json"
Status = Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED"]
MOST_QUEUED = 20
_NEWEST = 50
_STARTING_SECONDS = 60.0
_submitting = threading.Lock()


class Submission(BaseModel):
    """A run of the server's project. No caller chooses a path: what is read and written is the project's."""

    model_config = ConfigDict(extra="forbid")

    pipeline: Literal["training", "promotion", "monitoring", "materialization", "scoring"] = "training"
    window: str = Field("", max_length=100, description="Only events of START/END, e.g. 2013-01-01/2013-03-01.")
    seed: int | None = Field(None, ge=0, lt=2**31, description="Seed of splits, trials and weights.")
    rerun: str = Field("", max_length=500, description="Stages to run whatever the memo holds, e.g. train,evaluate.")
    backfill: str = Field("", max_length=500, description="Why rows of the earlier snapshot may change.")
    until: str = Field("", max_length=100, description="The last stage that runs; empty for all.")
    reason: str = Field("", max_length=2000, description="Why; it is kept with what the run makes.")

    @property
    def scope(self) -> Scope:
        """The scope that a token needs besides `run`, because the pipeline `promotion` can change the champion."""
        return "promote" if self.pipeline == "promotion" else "run"

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters of the pipeline that are given."""
        parameters = self.model_dump(include={"window", "seed", "rerun", "backfill"})
        return {name: value for name, value in parameters.items() if value not in ("", None)}


class StageOfRun(BaseModel):
    """A stage of a run: its last event, and its result if it succeeded."""

    stage: str
    title: str
    event: str = Field(description="`waiting`, `started`, `hit`, `finished`, `failed` or `paused`.")
    seconds: float
    result: dict[str, Any]


class Run(BaseModel):
    """A submitted run and its progress."""

    id: str
    status: Status
    pipeline: str
    by: str
    at: str
    reason: str
    stages: tuple[StageOfRun, ...] = ()
    error: str = Field("", description="The class of the error that ended it.")
    message: str = Field("", description="What the error says.")


def submit(store: ArtifactStore, project: Path | None, submission: Submission, by: str) -> Run:
    """Start a run in a separate process. Runs on one machine wait for each other.

    Raises ConfigurationError if the server has no project. Raises ProblemError: 429 if too many runs of this machine
    have not ended.
    """
    if project is None:
        raise ConfigurationError("This server runs no project: expected `gatehouse serve --project FOLDER`.")
    with _submitting:
        places = [_record(store, run, PROCESS) for run in _newest(store)]
        queued = sum(place is not None and _lives_here(place) for place in places)
        if queued >= MOST_QUEUED:
            raise ProblemError(
                429, f"{queued} submitted runs wait or run on this machine, the most that may: try later."
            )
        run = new_run_id()
        body = submission.model_dump(include={"pipeline", "reason", "until"}) | {"arguments": submission.arguments}
        store.record(f"runs/{run}/{SUBMITTED}", body | author(by))
        logs = store.local_folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with open(logs / f"{run}.server.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gatehouse.server.runs", run, str(project), store.address],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {USER: by, REASON: submission.reason},
                start_new_session=True,
            )
        process_of_run = {"host": socket.gethostname(), "pid": process.pid, "started": start_time(process.pid)}
        store.record(f"runs/{run}/{PROCESS}", process_of_run)
        return followed(store, run)


def followed(store: ArtifactStore, run: str) -> Run:
    """The state of a run, from its record. Raises MissingArtifactError if no such run was submitted to a server."""
    submitted = _record(store, run, SUBMITTED)
    if submitted is None:
        raise MissingArtifactError(f"{run}: no such run was submitted to a server of {store.address}.")
    stages: list[StageOfRun] = []
    plan = _record(store, run, PLAN)
    if plan is not None:
        local = LocalRun(run, Path(), [PlannedTask(**task) for task in plan["tasks"]])
        local.events = [event for _, event in events(store, run)]
        for task in local.plan:
            event = local.latest(task.stage)
            stage = StageOfRun(
                stage=task.stage,
                title=task.title,
                event=event.event if event else "waiting",
                seconds=float(event.body.get("seconds", 0)) if event else 0.0,
                result=json.loads(json.dumps(local.result(task.stage), default=str)),
            )
            stages.append(stage)
    facts: dict[str, Any] = {"id": run, "stages": tuple(stages)}
    facts |= {name: str(submitted[name]) for name in ("by", "at", "reason", "pipeline")}
    ended = _record(store, run, ENDED)
    if ended is None:
        place = _record(store, run, PROCESS)
        if place is None:
            began = datetime.fromisoformat(str(submitted["at"])).replace(tzinfo=UTC).timestamp()
            is_gone = time.time() - began > _STARTING_SECONDS
        else:  # Whether a process of another machine has ended cannot be seen from here.
            is_gone = place["host"] == socket.gethostname() and not _lives_here(place)
        if is_gone:
            message = "The process of the run is gone; submit it again, and it goes on."
            gone = {"error": "StoppedError", "message": message}
            ended = _record(store, run, ENDED) or {"exit_code": 1, "failure": gone}
    if ended is None:
        status: Status = "RUNNING" if plan is not None else "PENDING"
        return Run(status=status, **facts)
    failure = ended.get("failure") or {}
    return Run(
        status="FAILED" if ended["exit_code"] else "SUCCEEDED",
        error=str(failure.get("error", "")),
        message=str(failure.get("message", "")),
        **facts,
    )


def newest(store: ArtifactStore) -> list[Run]:
    """The newest runs that were submitted, the newest first, without their stages."""
    return [followed(store, run).model_copy(update={"stages": ()}) for run in _newest(store)]


def _newest(store: ArtifactStore) -> Iterator[str]:
    """Ids of the newest runs that were submitted, the newest first."""
    runs = sorted(store.objects.folders("runs"), reverse=True)
    return islice((run for run in runs if store.objects.stat(f"runs/{run}/{SUBMITTED}") is not None), _NEWEST)


def _lives_here(place: dict[str, Any]) -> bool:
    """Whether a process of this machine is still running."""
    return bool(place["host"] == socket.gethostname() and start_time(int(place["pid"])) == place["started"])


def _record(store: ArtifactStore, run: str, name: str) -> dict[str, Any] | None:
    return read_record(store.objects, f"runs/{run}/{name}")


def main(run: str, project: str, address: str) -> int:
    """Run what was submitted as `run`, once the run before it has ended; returns the exit code of `gatehouse run`."""
    store = ArtifactStore.open(address)
    submission = read_record(store.objects, f"runs/{run}/{SUBMITTED}") or {}
    with open(store.local_folder / "server-runs.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = run_pipeline(
            Path(project),
            submission["pipeline"],
            store,
            submission["arguments"],
            watch=lambda _: None,
            until=submission["until"],
            run_id=run,
        )
    store.record(f"runs/{run}/{ENDED}", {"exit_code": outcome.exit_code, "failure": outcome.failure})
    if showing := show_apart(store, run, outcome.log):
        showing.wait()
    return outcome.exit_code or 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
