"""Runs a pipeline on this machine and owns every process of it, from the first task to the last worker."""

import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gatehouse.kfp.driver import FAILURE, PLAN
from gatehouse.runtime.process import owner_env, stop_carrying
from gatehouse.store.records import read_record
from gatehouse.store.run import REPORT, RUN_ID, Event, events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.place import LATER

GRACE_SECONDS = 10.0
_POLL_SECONDS = 0.1
_FAR_POLL_SECONDS = 1.0
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class PlannedTask:
    """One task of a pipeline: its name in KFP, its stage, and its name for people."""

    task: str
    stage: str
    title: str


@dataclass
class LocalRun:
    """A run and its present state.

    Attributes:
        plan: The pipeline's tasks in order; empty until the pipeline is built.
        objective: The metric by which the gate compares models, if there is one.
        seen: Keys of the events read so far.
        exit_code: None while the run is active.
        failure: Cause of a failure, with `error`, `message` and `exit_code`; and `stage` if a stage failed.
    """

    run: str
    log: Path
    plan: list[PlannedTask] = field(default_factory=list)
    objective: str = ""
    events: list[Event] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    exit_code: int | None = None
    failure: dict[str, Any] | None = None

    def latest(self, stage: str) -> Event | None:
        """The most informative event of the newest attempt at a stage: its end if it ended, else its start."""
        attempts = [event for event in self.events if event.stage == stage and event.event != "warned"]
        return max(attempts, key=lambda event: (event.attempt, event.event != "started"), default=None)

    def result(self, stage: str) -> dict[str, Any]:
        """The result of a stage that succeeded, or an empty dictionary."""
        event = self.latest(stage)
        result: dict[str, Any] = event.body.get("result", {}) if event else {}
        return result


def new_run_id() -> str:
    """An id that sorts by time: `20130115-081500-3fa2`."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def recorded_run(store: ArtifactStore, run: str) -> LocalRun:
    """A run from its record, wherever it ran."""
    recorded = LocalRun(run, store.local_folder / "logs" / f"{run}.log")
    _refresh(recorded, store)
    return recorded


def run_pipeline(
    project: Path,
    pipeline: str,
    store: ArtifactStore,
    arguments: dict[str, Any],
    watch: Callable[[LocalRun], None],
    until: str = "",
    run_id: str = "",
) -> LocalRun:
    """Run a pipeline through `kfp.local` in a process of its own, and return when everything has ended.

    SIGINT and SIGTERM stop the run's processes in order. Should this process be killed, they end themselves. MLflow
    shows the metrics of a training that takes longer than seconds; the rest is for the caller (`show_apart`).
    `watch` is called with the run whenever something may have changed; `until` names the last stage that runs.
    """
    run = LocalRun(run_id or new_run_id(), store.local_folder / "logs" / "pending.log")
    run.log = run.log.with_name(f"{run.run}.log")
    run.log.parent.mkdir(parents=True, exist_ok=True)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with _signals() as received, open(run.log, "wb") as log:
        driver = subprocess.Popen(
            _command(project, pipeline, store, arguments, until),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | owner_env() | {RUN_ID: run.run, LATER: "1", "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        try:
            while driver.poll() is None and not received:
                _refresh(run, store)
                watch(run)
                with suppress(subprocess.TimeoutExpired):
                    driver.wait(_POLL_SECONDS if store.objects.parallel == 1 else _FAR_POLL_SECONDS)
        finally:
            stop_carrying(RUN_ID, run.run, grace=GRACE_SECONDS if driver.poll() is None else 0.5)
            driver.wait()
        if received:
            store.sweep()  # The stopped processes ended without removing what they worked in.
        _refresh(run, store)
        if received:  # Errors that occur while a run is stopped are not its cause.
            run.exit_code = 128 + received[0]
        else:
            failures = (
                event.body | {"stage": event.stage}
                for event in run.events
                if event.event in ("failed", "stopped") and ":" not in event.stage and run.latest(event.stage) == event
            )
            run.failure = next(failures, None) or read_record(store.objects, f"runs/{run.run}/{FAILURE}")
            run.exit_code = int(run.failure["exit_code"]) if run.failure else int(driver.returncode != 0)
        record_own_end(run, store)  # A second signal does not keep it from being recorded.
    watch(run)
    return run


def record_own_end(run: LocalRun, store: ArtifactStore) -> None:
    """Record the end of a run whose last task did not: it was stopped, or failed before it had tasks."""
    from gatehouse.operations.ending_stage import outcome_of, record_end  # Its import would delay the run's process.

    plan = read_record(store.objects, f"runs/{run.run}/{PLAN}")
    if plan is not None and not run.result(REPORT):
        state = "SUCCEEDED" if run.exit_code == 0 else "CANCELED" if run.exit_code and run.exit_code > 128 else "FAILED"
        names = {"project": plan["project"], "pipeline": plan["pipeline"]}
        record_end(store, run.run, outcome_of(run.events, state), "gatehouse run", **names)


def _command(project: Path, pipeline: str, store: ArtifactStore, arguments: dict[str, Any], until: str) -> list[str]:
    return [
        *(sys.executable, "-m", "gatehouse.kfp.driver", "--project", str(project), "--pipeline", pipeline),
        *("--store", store.address, "--arguments", json.dumps(arguments), "--until", until),
    ]


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Inside this context, SIGINT, SIGTERM and SIGHUP are collected instead of ending the process."""
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, _frame: received.append(number)) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _refresh(run: LocalRun, store: ArtifactStore) -> None:
    for key, event in events(store, run.run, run.seen, trials=True):
        run.seen.add(key)
        run.events.append(event)
    if not run.plan and (plan := read_record(store.objects, f"runs/{run.run}/{PLAN}")) is not None:
        run.plan = [PlannedTask(**task) for task in plan["tasks"]]
        run.objective = plan["objective"]
