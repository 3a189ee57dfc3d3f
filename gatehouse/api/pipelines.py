"""Runs of pipelines, from their records in the store: state and stages, totals, keys of stages; and their submission.

A submitted run has its own process, which outlives the server that started it.
"""

import fcntl
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from gatehouse.configuration.strict import models_in
from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError, GatehouseError, MissingArtifactError
from gatehouse.operations.ending_stage import outcome_in_kfp, outcome_of
from gatehouse.operations.metrics import Row, Totals, gate_outcomes, read, totals, update
from gatehouse.registry.ledger import CHAMPION, Ledger, model_names
from gatehouse.runtime.process import start_time
from gatehouse.runtime.redaction import redacted, without_secrets
from gatehouse.runtime.variables import TRIGGERS_SECRET
from gatehouse.store.identity import is_operational
from gatehouse.store.records import USER, author, changes, read_record, read_records, remove_record
from gatehouse.store.reference import references_in
from gatehouse.store.run import END, REASON, Event, end_of, events, recorded_runs
from gatehouse.store.stage import declared_stages
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.kfp_api.client import KfpApi

SUBMITTED, PROCESS, ENDED = "submitted.json", "process.json", "ended.json"
MOST_QUEUED = 20
_STARTING_SECONDS = 60.0
_MOST_STARTS = 3
"""How often a run that is killed is started, as one that is too large for the machine would be for ever."""
_SILENT = 2 * 86_400.0
ENDINGS = {"hit": "came from the memo", "finished": "ran", "failed": "failed", "stopped": "was stopped"}
"""The events that end a stage, in words."""
_submitting = threading.Lock()


class TooManyRunsError(GatehouseError):
    """So many submitted runs wait or run on this machine that no more are taken."""


@dataclass(frozen=True)
class StageOfRun:
    """A stage of a run: its last event (`waiting` before the first), and its result if it succeeded."""

    stage: str
    title: str
    event: str
    seconds: float | None
    says: str
    result: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Run:
    """A run of a pipeline, on this machine or a cluster.

    `state` is `pending` or `running`, then `succeeded`, `failed` or `stopped`. Nothing records the end of a pipeline of
    one's own: its state is `failed` after a failure of a stage, `running` while a stage runs, and else `unknown`.
    """

    id: str
    project: str
    pipeline: str
    state: str
    began: datetime | None
    seconds: float
    by: str
    reason: str
    decision: str
    error: str
    message: str
    metrics: dict[str, float]
    stages: tuple[StageOfRun, ...]


def run(store: ArtifactStore, run_id: str, kfp: "Callable[[], KfpApi] | None" = None) -> Run:
    """A run, from its record, and from KFP if it was submitted there and has no recorded end.

    Raises MissingArtifactError if the store has no record of it; KfpError if KFP does not answer.
    """
    from gatehouse.kfp.local_run import recorded_run

    names = {key.rsplit("/", 1)[1] for key in store.objects.list(f"runs/{run_id}")}
    if not names:
        raise MissingArtifactError(f"{run_id}: {store.address} has no record of such a run.")
    recorded, end = recorded_run(store, run_id), end_of(store, run_id) or {}
    submitted, ended = _record(store, run_id, SUBMITTED) or {}, _record(store, run_id, ENDED)
    outcome, failure = outcome_of(recorded.events), (ended or {}).get("failure") or {}
    there = kfp().run(run_id) if submitted.get("kfp") and kfp and not end else None
    if there and there.ended:
        end = vars(outcome_in_kfp(store, run_id, there.state))
    if submitted and not ended and not end and not submitted.get("kfp") and _is_gone(store, run_id, submitted):
        message = "The process of the run is gone; submit it again, and it goes on."
        ended = _record(store, run_id, ENDED)  # It may have ended meanwhile.
        failure = (ended or {}).get("failure") or ({} if ended else {"error": "StoppedError", "message": message})
    if end or failure or ended:
        state = end.get("state") or ("failed" if failure or (ended or {}).get("exit_code") else "succeeded")
    elif recorded.plan or submitted or outcome.error == "KilledError":
        state = "running" if recorded.events or recorded.plan or (there and there.state == "RUNNING") else "pending"
    else:
        state = "unknown" if outcome.state == "succeeded" else outcome.state
    stages = []
    for task in recorded.plan:
        event, result = recorded.latest(task.stage), recorded.result(task.stage)
        says = next((str(result[name]) for name in ("decision", "verdict", "summary") if result.get(name)), "")
        seconds, body = event.body.get("seconds") if event else None, json.loads(json.dumps(result, default=str))
        stages.append(StageOfRun(task.stage, task.title, event.event if event else "waiting", seconds, says, body))
    began = datetime.fromtimestamp(outcome.began, UTC) if outcome.began else None
    why = end if end.get("error") or end.get("message") else failure or vars(outcome)
    return Run(
        id=run_id,
        project=str(end.get("project", "")),
        pipeline=str(end.get("pipeline") or submitted.get("pipeline", "")),
        state=state,
        began=began or (_time_of(submitted) if submitted else None),
        seconds=round(outcome.seconds, 1),
        by=str(submitted.get("by", "")),
        reason=str(submitted.get("reason", "")),
        decision=str(recorded.result("register").get("decision") or ""),
        error=str(why.get("error") or "") if state != "running" else "",
        message=str(why.get("message") or "") if state != "running" else "",
        metrics=dict(recorded.result("evaluate").get("metrics") or {}),
        stages=tuple(stages),
    )


def newest(store: ArtifactStore, most: int = 50) -> list[Run]:
    """The newest runs of pipelines, the newest first."""
    # KFP's ids are random. One record of each run says when it began, was submitted, or at least ended.
    keys = {}
    for run_id, names in recorded_runs(store).items():
        first = min((name for name in names if name.endswith(".1.started.json")), default=END)
        keys[run_id] = f"runs/{run_id}/{SUBMITTED if SUBMITTED in names else first}"
    bodies = read_records(store.objects, keys.values())

    def began(run_id: str) -> float:
        body = bodies.get(keys[run_id], {})
        return (
            _time_of(body).timestamp() if "by" in body and "at" in body else body.get("at") or body.get("recorded", 0)
        )

    return [run(store, run_id) for run_id in sorted(keys, key=began, reverse=True)[:most]]


def _time_of(body: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(str(body["at"])).replace(tzinfo=UTC)


def _record(store: ArtifactStore, run_id: str, name: str) -> dict[str, Any] | None:
    return read_record(store.objects, f"runs/{run_id}/{name}")


def _is_gone(store: ArtifactStore, run_id: str, submitted: Mapping[str, Any]) -> bool:
    """Whether the process of a submitted run has ended; of another machine, this cannot be seen from here."""
    place = _record(store, run_id, PROCESS)
    if place is None:
        return time.time() - _time_of(submitted).timestamp() > _STARTING_SECONDS
    return bool(place["host"] == socket.gethostname() and not _lives_here(place))


def _lives_here(place: Mapping[str, Any]) -> bool:
    return bool(place["host"] == socket.gethostname() and start_time(int(place["pid"])) == place["started"])


class Submission(BaseModel):
    """A run of a server's project. No caller chooses a path: what is read and written is the project's."""

    model_config = ConfigDict(extra="forbid")

    pipeline: str = Field("training", pattern="^(training|promotion|monitoring|materialization|scoring|rollout)$")
    window: str = Field("", max_length=100, description="Only events of START/END, e.g. 2013-01-01/2013-03-01.")
    seed: int | None = Field(None, ge=0, lt=2**31, description="Seed of splits, trials and weights.")
    rerun: str = Field("", max_length=500, description="Stages to run whatever the memo holds, e.g. train,evaluate.")
    backfill: str = Field("", max_length=500, description="Why rows of the earlier snapshot may change.")
    until: str = Field("", max_length=100, description="The last stage that runs; empty for all.")
    reason: str = Field("", max_length=2000, description="Why; it is kept with what the run makes.")

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters of the pipeline that are given."""
        parameters = self.model_dump(include={"window", "seed", "rerun", "backfill"})
        return {name: value for name, value in parameters.items() if value not in ("", None)}


def submit(
    store: ArtifactStore, project: Path | None, submission: Submission, by: str, profile: Path | None = None
) -> Run:
    """Start a run: on Kubeflow Pipelines where a platform profile is given, else in a separate process here.

    Raises ConfigurationError if there is no project; TooManyRunsError if too many runs here have not ended.
    """
    from gatehouse.kfp.local_run import new_run_id

    if project is None:
        raise ConfigurationError("This server runs no project: expected `gatehouse serve --project FOLDER`.")
    if profile and submission.until:
        raise ConfigurationError("until: expected none on Kubeflow Pipelines, which runs whole pipelines.")
    what = submission.model_dump(include={"pipeline", "reason", "until"}) | {"arguments": submission.arguments}
    return run(store, start(store, project, profile, secrets.token_hex(6) if profile else new_run_id(), what, by))


def start(
    store: ArtifactStore, project: Path, profile: Path | None, name: str, what: Mapping[str, Any], by: str
) -> str:
    """Start a run, unless that was done before, and return its id: `name`, or on KFP that of the run with this name.

    `what` has `pipeline`, `arguments`, `reason` and `until`. Raises TooManyRunsError if too many runs here have not
    ended.
    """
    with _submitting:  # KFP builds a pipeline in a variable of its module.
        if profile is None:
            return _start_here(store, project, name, what, by)
        from gatehouse.api.schedules import Cluster

        cluster = Cluster.of(project, profile)
        with cluster.alone(f"run {name}") as turn:
            submitted = next(cluster.api.runs(containing=name), None)
            if submitted is None:
                upload = cluster.compiled([what["pipeline"]])[what["pipeline"]]
                submission = cluster.submission(upload, what["arguments"], word=name)
                cluster.require_runs(submission.parameters)
                cluster.publish()
                submitted = submission.send(cluster.api, turn.require)
        store.record(f"runs/{submitted.id}/{SUBMITTED}", {**what, "kfp": True} | author(by))
        return submitted.id


def _start_here(store: ArtifactStore, project: Path, run_id: str, what: Mapping[str, Any], by: str) -> str:
    """Start a separate process. Runs on one machine wait for each other."""
    if _record(store, run_id, PROCESS):
        return run_id
    recorded = recorded_runs(store).items()
    pending = [run_id for run_id, names in recorded if PROCESS in names and ENDED not in names]
    queued = sum(_lives_here(_record(store, run_id, PROCESS) or {"host": ""}) for run_id in pending)
    if queued >= MOST_QUEUED:
        raise TooManyRunsError(f"{queued} submitted runs wait or run on this machine, the most that may: try later.")
    store.record(f"runs/{run_id}/{SUBMITTED}", {**what} | author(by))
    logs = store.local_folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {USER: by, REASON: what["reason"]}
    environment.pop(TRIGGERS_SECRET, None)  # Only the server checks events.
    with open(logs / f"{run_id}.server.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gatehouse.api.pipelines", run_id, str(project), store.address],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    _record_process(store, run_id, process.pid)
    return run_id


def is_lost(store: ArtifactStore, run_id: str) -> bool:
    """Whether a run of a machine was killed: its process is gone, or on another machine silent for two days."""
    place, submitted = (_record(store, run_id, name) for name in (PROCESS, SUBMITTED))
    if not submitted or submitted.get("kfp") or end_of(store, run_id) or _record(store, run_id, ENDED):
        return False
    if place is None or place["host"] == socket.gethostname():
        return _is_gone(store, run_id, submitted) and not _record(store, run_id, ENDED)  # It may have ended meanwhile.
    signs = [float(event.body["at"]) for _, event in events(store, run_id)]
    return time.time() - max(signs, default=_time_of(submitted).timestamp()) > _SILENT


def start_again(store: ArtifactStore, project: Path, run_id: str) -> None:
    """Start a run that was killed, which goes on where it was; after the last start, record that it has failed."""
    submitted = _record(store, run_id, SUBMITTED) or {}
    starts = sum(".killed." in key for key in store.objects.list(f"runs/{run_id}")) + 1
    if starts >= _MOST_STARTS:
        message = f"It was started {starts} times, and each time its process was killed, as for too little memory."
        failure = {"error": "KilledError", "message": message}
        store.record(f"runs/{run_id}/{ENDED}", {"exit_code": 1, "failure": failure})
        return
    store.record(f"runs/{run_id}/process.killed.{starts}.json", author())
    remove_record(store.objects, f"runs/{run_id}/{PROCESS}")
    what = {name: submitted[name] for name in ("pipeline", "arguments", "reason", "until")}
    _start_here(store, project, run_id, what, submitted["by"])


def _record_process(store: ArtifactStore, run_id: str, pid: int) -> None:
    place = {"host": socket.gethostname(), "pid": pid, "started": start_time(pid)}
    store.record(f"runs/{run_id}/{PROCESS}", place)


def main(run_id: str, project: str, address: str) -> int:
    """Run what was submitted, once the run before it has ended; returns the exit code of `gatehouse run`.

    A second process of the same run finds its end, and has nothing to do.
    """
    from gatehouse.kfp.local_run import run_pipeline
    from gatehouse.tracking.projection import show_apart

    store = ArtifactStore.open(address)
    submitted = _record(store, run_id, SUBMITTED) or {}
    _record_process(store, run_id, os.getpid())  # The process that started this one may have been killed.
    with open(store.local_folder / "server-runs.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ended := _record(store, run_id, ENDED):
            return int(ended["exit_code"] or 0)
        what = (Path(project), submitted["pipeline"], store, submitted["arguments"])
        outcome = run_pipeline(*what, watch=lambda _: None, until=submitted["until"], run_id=run_id)
    store.record(f"runs/{run_id}/{ENDED}", {"exit_code": outcome.exit_code, "failure": outcome.failure})
    if showing := show_apart(store, run_id, outcome.log):
        showing.wait()
    return outcome.exit_code or 0


@dataclass(frozen=True)
class Status:
    """How pipelines and stages do; what was not measured is None. `rows` are the runs and tasks that ended."""

    days: float
    running: list[str]
    champion_age_seconds: dict[str, float]
    champion_changes: dict[str, dict[str, int]]
    gate: dict[str, int]
    totals: list[Totals]
    rows: list[Row] = field(repr=False)


def status(store: ArtifactStore, days: float = 30.0) -> Status:
    """The runs that began in the last days, the champions' ages and changes, and the gate's decisions."""
    now = time.time()
    update(store)
    rows, ages, changes = read(store, now - days * 86_400.0), dict[str, float](), dict[str, dict[str, int]]()
    for name in model_names(store):
        ledger = Ledger(store, name)
        champion = ledger.state().champion
        made = [
            (record.version, record.kind, now - datetime.fromisoformat(str(record.provenance["at"])).timestamp())
            for record in ledger.records()
            if record.alias == CHAMPION and record.kind in ("promoted", "rolled_back") and record.provenance.get("at")
        ]
        if since := [age for version, _, age in made if version == champion]:
            ages[name] = min(since)
        recent = Counter(kind for _, kind, age in made if age <= days * 86_400.0)
        changes[name] = {kind: recent[kind] for kind in ("promoted", "rolled_back")}
    # Runs without an end that gave a sign of life in the last two days; `reconcile` handles the others.
    unfinished = [run_id for run_id, names in recorded_runs(store).items() if END not in names]
    last = {run_id: max((float(e.body["at"]) for _, e in events(store, run_id)), default=0.0) for run_id in unfinished}
    running = sorted(run_id for run_id, at in last.items() if now - at < _SILENT)
    return Status(days, running, ages, changes, gate_outcomes(rows), totals(rows), rows)


def code_of_stage(stage: str) -> dict[str, Any]:
    """The parts of a stage's key: fields of its request, modules, distributions; and why, if it has no memo.

    Raises ConfigurationError if there is no such stage.
    """
    stages, name = declared_stages(), stage.rpartition(":")[2]
    if name not in stages:
        expected = ", ".join(sorted(stages))
        raise ConfigurationError(f"There is no stage {stage!r}{nearest(name, stages)}: expected one of {expected}.")
    declared = stages[name]
    left_out = sorted(set(_operational(declared.request)))  # Alternative models have fields with the same names.
    fields, effects = sorted(set(declared.request.model_fields) - set(left_out)), declared.declared.effects
    body = {"fields": fields, "left_out": left_out} | declared.sources().to_json()
    return body | {"memo": effects.memo, "why": effects.why}


def _operational(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """The fields that are in no key, including those of nested models, as `spec.timeout`."""
    for name, info in model.model_fields.items():
        if is_operational(info):
            yield path + name
        else:
            for inner in dict.fromkeys(models_in(info.annotation)):
                yield from _operational(inner, f"{path}{name}.")


def key_in(store: ArtifactStore, stage: str, run_id: str) -> Event:
    """The end of a stage in a run, with its key and request. Raises ConfigurationError if the run has no key of it."""
    ended = [event for _, event in events(store, run_id) if event.event in ENDINGS and "key" in event.body]
    attempts = [event for event in ended if event.stage == stage]
    if not attempts:
        keyed = ", ".join(sorted({event.stage for event in ended}))
        ids = sorted({key.split("/")[1] for key in store.objects.list("runs")}, reverse=True)[:5]
        raise ConfigurationError(
            f"Run {run_id} has no key of {stage}: it has those of {keyed or 'no stage'}. A stage that did not end, or "
            f"that has no memo, has none. The newest runs of {store.address} are {', '.join(ids) or 'none'}."
        )
    return max(attempts, key=lambda event: event.attempt)


@dataclass(frozen=True)
class Difference:
    """A difference between two keys: the kind of item, its name, and its values; None if not in the key."""

    part: str
    name: str
    first: Any
    second: Any


def differences(store: ArtifactStore, *ends: Event) -> list[Difference]:
    """Everything that is in only one of the keys of two stages, or has different values."""
    first, second = (event.body for event in ends)
    if first["key"] == second["key"]:
        return []
    differing = [
        Difference("input" if references_in([a, b]) else "field", name, a, b)
        for name, a, b in changes(first["request"], second["request"])
    ]
    if first["code"] != second["code"]:
        codes = [read_record(store.objects, f"code/{body['code']}.json") or {} for body in (first, second)]
        for part in ("modules", "distributions") if all(codes) else ():
            differing += [Difference(part.removesuffix("s"), *c) for c in changes(codes[0][part], codes[1][part])]
        if not all(codes):
            name = "what it was made of is not recorded in this store"
            differing.append(Difference("code", name, first["code"], second["code"]))
    if first["outside"] != second["outside"]:
        name = "the package of yours that the request names"
        differing.append(Difference("own code", name, first["outside"], second["outside"]))
    return differing


def makers_of(store: ArtifactStore, differing: list[Difference]) -> list[str]:
    """The stages that made the second's inputs that differ."""
    inputs = references_in([difference.second for difference in differing if difference.part == "input"])
    records = (key for reference in inputs for key in store.objects.list(f"provenance/{reference}"))
    return sorted({str((read_record(store.objects, key) or {}).get("stage", "")) for key in records} - {""})


def text_of(value: Any) -> str:
    """A value of a request as text, without secrets."""
    return redacted(value if isinstance(value, str) else json.dumps(without_secrets(value)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
