"""A server that speaks the API of Kubeflow Pipelines 2.17 (v2beta1) over HTTP, for tests: `with serving() as server`.

It has the routes that `gatehouse.kfp_api` asks. `kfp_recorded.jsonl` holds answers of a real server, and
`tests/kfp_api/test_recorded.py` compares. Every body and every answer is checked against the published description of
the API (`kfp_v2beta1.swagger.json`). Nothing is compiled to Argo and no pod runs: tests move runs on with `set_state`
and `begin_task`, and let schedules fall due with `fire`.
"""

import base64
import email
import email.policy
import itertools
import json
import re
import socket
import threading
import time
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, unquote_plus, urlsplit

import yaml
from jsonschema import Draft4Validator

from gatehouse.configuration.schedule import require_cron, times_after
from gatehouse.errors import ConfigurationError
from gatehouse.kfp_api.connection import Patience
from gatehouse.kfp_api.specs import check_parameters, parameters_of
from tests.stand_ins.http_server import Handler, listening

Body = dict[str, Any]
INVALID, NOT_FOUND, EXISTS, ABORTED, INTERNAL, UNAUTHENTICATED = 3, 5, 6, 10, 13, 16
_STATUS = {INVALID: 400, UNAUTHENTICATED: 401, NOT_FOUND: 404, EXISTS: 409, ABORTED: 409, INTERNAL: 500}
_EPOCH = "1970-01-01T00:00:00Z"
_IDS = {
    "experiments": "experiment_id",
    "pipelines": "pipeline_id",
    "pipeline_versions": "pipeline_version_id",
    "runs": "run_id",
    "recurring_runs": "recurring_run_id",
}
FAULTS = ("before", "after", "dropped", "slow", "down", "down after")
"""What can befall a call: an error before or after it has its effect, a connection that breaks after it, an answer that
comes too late, and a server that is away from then on, before or after the effect."""
PERSISTENT = Patience(request=5.0, retry=5.0, first_pause=0.002, longest_pause=0.004, settle=5.0, poll=0.005)
IMPATIENT = replace(PERSISTENT, retry=0.05, settle=0.3)

PIPELINE = """\
components:
  comp-say:
    executorLabel: exec-say
deploymentSpec:
  executors:
    exec-say:
      container: {image: "example.com/say@sha256:00"}
pipelineInfo: {name: say}
root:
  dag:
    tasks:
      say:
        cachingOptions: {enableCache: true}
        componentRef: {name: comp-say}
        taskInfo: {name: say}
  inputDefinitions:
    parameters:
      word: {parameterType: STRING}
      times: {parameterType: NUMBER_INTEGER, defaultValue: 1.0, isOptional: true}
      tone: {parameterType: STRING, defaultValue: kind, isOptional: true, literals: [kind, stern]}
schemaVersion: 2.1.0
sdkVersion: kfp-2.17.0
"""
"""A compiled pipeline with three parameters."""


def impatient(fault: str) -> Patience:
    """The patience of a client that gives up at a fault; only a late answer needs a short wait for one request."""
    return replace(IMPATIENT, request=0.15) if fault == "slow" else IMPATIENT


def written(seconds: float) -> str:
    """A time as the server writes it."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Refusal(Exception):
    """An error of gRPC, which the gateway translates."""

    def __init__(self, code: int, message: str, internal: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.internal = code, message, internal or message


@dataclass
class Objects:
    """The state of the server; `clock` is its time in seconds, which each creation moves on by one."""

    clock: float = 1_790_000_000.0
    experiments: dict[str, Body] = field(default_factory=dict)
    pipelines: dict[str, Body] = field(default_factory=dict)
    pipeline_versions: dict[str, Body] = field(default_factory=dict)
    runs: dict[str, Body] = field(default_factory=dict)
    recurring_runs: dict[str, Body] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        about = "All runs created without specifying an experiment will be grouped here."
        self.create_experiment({"display_name": "Default", "description": about})

    def create_experiment(self, body: Body) -> Body:
        name = body["display_name"]
        if any(experiment["display_name"] == name for experiment in self.experiments.values()):
            raise Refusal(
                EXISTS, f"Failed to create a new experiment. The name {name} already exists. Please specify a new name"
            )
        times = {"created_at": self._now(), "last_run_created_at": _EPOCH}
        fields = {"display_name": name, "description": body.get("description", ""), "storage_state": "AVAILABLE"}
        return self._keep("experiments", fields | times)

    def create_pipeline(self, body: Body) -> Body:
        name = body.get("name") or body["display_name"]
        if any(pipeline["name"] == name for pipeline in self.pipelines.values()):
            raise Refusal(
                EXISTS, f"Failed to create a new pipeline. The name {name} already exist. Please specify a new name"
            )
        fields = {"name": name, "display_name": body.get("display_name") or name, "created_at": self._now()}
        return self._keep(
            "pipelines", fields | {"description": body.get("description", ""), "tags": _tags(body.get("tags", {}))}
        )

    def pipeline_by_name(self, name: str) -> Body:
        for pipeline in self.pipelines.values():
            if pipeline["name"] == name:
                return pipeline
        raise Refusal(NOT_FOUND, f"Namespace/Pipeline /{name} not found")

    def upload_version(self, query: Mapping[str, str], file: tuple[str, bytes]) -> Body:
        """POST /pipelines/upload_version, which has errors of its own."""
        pipeline, name = query["pipelineid"], query["name"]
        spec, *platform = yaml.load_all(file[1], Loader=yaml.CSafeLoader)
        if not isinstance(spec, dict) or spec.get("schemaVersion") != "2.1.0" or "root" not in spec:
            raise Refusal(INVALID, "unknown template format")
        versions = self.pipeline_versions.values()
        if any((version["pipeline_id"], version["name"]) == (pipeline, name) for version in versions):
            raise Refusal(EXISTS, "Failed to create a pipeline version")
        fields = {
            "pipeline_id": pipeline,
            "name": name,
            "display_name": query.get("display_name") or name,
            "description": query.get("description", ""),
            "created_at": self._now(),
            "tags": _tags(json.loads(query.get("tags") or "{}")),
            "pipeline_spec": {"pipeline_spec": spec, "platform_spec": platform[0]} if platform else spec,
        }
        return self._keep("pipeline_versions", fields)

    def version(self, version: str) -> Body:
        return self._find("pipeline_versions", "PipelineVersion", version)

    def run(self, run: str) -> Body:
        return self._find("runs", "Run", run)

    def create_run(self, body: Body) -> Body:
        if not body.get("display_name"):
            raise Refusal(INTERNAL, "Internal Server Error", "Run name cannot be empty")
        _require_short(body)
        experiment, source, now = self._experiment_of(body), self._source(body), self._now()
        self.experiments[experiment]["last_run_created_at"] = now
        fields = {
            "experiment_id": experiment,
            "recurring_run_id": body.get("recurring_run_id", ""),
            "display_name": body["display_name"],
            "description": body.get("description", ""),
            "service_account": body.get("service_account") or "pipeline-runner",
            "runtime_config": body.get("runtime_config", {}),
            "storage_state": "AVAILABLE",
            "state": "PENDING",
            "state_history": [{"update_time": now, "state": "PENDING"}],
            "created_at": now,
            "scheduled_at": now,
            "finished_at": _EPOCH,
            "plugins_input": body.get("plugins_input", {}),
        }
        return self._keep("runs", fields | source)

    def terminate_run(self, run: str) -> Body:
        """CANCELING until the pods ended; the history tells it when that is reported."""
        body = self.run(run)
        if body["state"] not in ("PENDING", "RUNNING", "PAUSED"):
            raise Refusal(INVALID, f"Failed to terminate a run {run}. Row not found")
        body["state"] = "CANCELING"
        return {}

    def set_state(self, run: str, state: str) -> None:
        """Let a run be in another state, as the controller reports it."""
        body, now = self.runs[run], self._now()
        body["state"] = state
        body["state_history"].append({"update_time": now, "state": state})
        body["finished_at"] = now if state in ("SUCCEEDED", "SKIPPED", "FAILED", "CANCELED") else _EPOCH

    def begin_task(self, run: str, task: str, state: str = "RUNNING") -> None:
        """Let a run come to a task, as the controller reports its nodes: driver, task, executor, attempts of each.

        `state` is empty for a task that is omitted, whose nodes start and end at once.
        """
        body, now = self.runs[run], self._now()
        nodes = body.setdefault("run_details", {}).setdefault("task_details", [])
        end = "0001-01-01T00:00:00Z" if state == "RUNNING" else now
        for name in (f"{task}-driver", f"{task}-driver(0)", task, f"{task}(0)", "executor", "executor(0)"):
            node = {"display_name": name, "create_time": body["created_at"], "start_time": now, "end_time": end}
            node |= {"run_id": run, "task_id": self._id(), "state": state}
            node |= {"state_history": [{"update_time": now, "state": state}]}
            nodes.append(
                node | ({} if name == "executor(0)" else {"child_tasks": [{"pod_name": f"{task}-{len(nodes)}"}]})
            )
        if state:  # What the launcher itself reports has neither a name nor a state.
            times = {"create_time": now, "start_time": now, "end_time": now}
            nodes.append({"run_id": run, "task_id": self._id(), "execution_id": str(len(nodes)), **times})

    def create_recurring_run(self, body: Body) -> Body:
        _require_short(body)
        most, trigger = int(body.get("max_concurrency", 0)), body.get("trigger", {})
        if not 1 <= most <= 10:
            raise Refusal(
                INVALID, f"Max concurrency of a recurring run must be at least 1 and at most 10. Received {most}"
            )
        if expression := trigger.get("cron_schedule", {}).get("cron"):
            try:
                require_cron(_six_fields(expression))
            except ValueError as error:
                expected = "Schedule cron is not a supported format(https://godoc.org/github.com/robfig/cron)"
                raise Refusal(INVALID, f"{expected}. Error: {error}") from error
        seconds = trigger.get("periodic_schedule", {}).get("interval_second")
        if seconds is not None and int(seconds) < 1:
            raise Refusal(
                INVALID, f"Found invalid period schedule interval {seconds}. Set at interval to least 1 second"
            )
        experiment, now = self._experiment_of(body), self._now()
        self._source(body)
        mode = body.get("mode", "DISABLE")
        pinned = "pipeline_spec" in body or "pipeline_version_id" in body["pipeline_version_reference"]
        fields = {
            "display_name": body["display_name"],
            "description": body.get("description", ""),
            "service_account": body.get("service_account", "") or ("pipeline-runner" if pinned else ""),
            "status": f"{mode}D",
            "mode": mode,
            "created_at": now,
            "updated_at": now,
            "max_concurrency": str(most),
            "no_catchup": body.get("no_catchup", False),
            "trigger": trigger,
            "runtime_config": body.get("runtime_config", {}),
            "namespace": "kubeflow",
            "experiment_id": experiment,
            "plugins_input": body.get("plugins_input", {}),
        }
        fields |= {key: body[key] for key in ("pipeline_version_reference", "pipeline_spec") if key in body}
        return self._keep("recurring_runs", fields)

    def enable(self, recurring_run: str, mode: str = "ENABLE") -> Body:
        body = self._find("recurring_runs", "Job", recurring_run)
        body |= {"status": f"{mode}D", "mode": mode, "updated_at": self._now()}
        return {}

    def delete_recurring_run(self, recurring_run: str, query: Mapping[str, str]) -> Body:
        """Takes the workflows under way along, unless they are orphaned."""
        self._find("recurring_runs", "Job", recurring_run)
        del self.recurring_runs[recurring_run]
        for run in self.runs.values():
            if run["recurring_run_id"] == recurring_run and query.get("propagation_policy") != "ORPHAN":
                self.set_state(run["run_id"], "FAILED")
        return {}

    def fire(self) -> list[Body]:
        """Let every enabled schedule start the runs that are due, as the controller of scheduled workflows does."""
        return [
            run
            for schedule in self.recurring_runs.values()
            if schedule["status"] == "ENABLED"
            for due in _due(schedule, self.clock)
            if (run := self._fired(schedule, due))
        ]

    def _fired(self, schedule: Body, due: float) -> Body | None:
        """The run that the controller starts; None if the server refuses it."""
        schedule["last"], schedule["fired"] = due, schedule.get("fired", 0) + 1
        resource = re.sub("[^a-z0-9-]+", "", schedule["display_name"].lower())[:25]
        name = f"{schedule.setdefault('resource', f'{resource}{next(self._numbers):05x}')}-{schedule['fired']}"
        taken = ("experiment_id", "pipeline_version_reference", "recurring_run_id", "runtime_config")
        body = {key: schedule[key] for key in taken} | {"display_name": f"{name}-{zlib.crc32(name.encode())}"}
        with suppress(Refusal):
            run = self.create_run(body)
            # The server hears of the run when its workflow runs, and reads no account there.
            running = {"update_time": run["created_at"], "state": "RUNNING"}
            run |= {"service_account": "", "state": "RUNNING", "state_history": [running], "scheduled_at": written(due)}
            return run
        return None

    def _source(self, body: Body) -> Body:
        """The version that a body names, or the newest, if the parameters fit its spec."""
        named = body.get("pipeline_version_reference", {})
        if not named and "pipeline_spec" not in body:
            raise Refusal(
                INTERNAL, "Internal Server Error", "Failed to fetch a template with an empty pipeline spec manifest"
            )
        source = body
        if named:
            versions = [
                version
                for version in self.pipeline_versions.values()
                if all(version[key] == value for key, value in named.items())
            ]
            if not versions:
                raise Refusal(
                    INTERNAL, "Internal Server Error", "Failed to create a run due to error fetching manifest"
                )
            source = versions[-1]
        spec = source["pipeline_spec"].get("pipeline_spec", source["pipeline_spec"])
        values = body.get("runtime_config", {}).get("parameters", {})
        if unknown := sorted(values.keys() - parameters_of(spec).keys()):
            raise Refusal(INVALID, f"parameter(s) provided are not required by pipeline: {', '.join(unknown)}")
        try:
            check_parameters(spec, values)
        except ConfigurationError as error:
            raise Refusal(INVALID, str(error)) from error
        if not named:
            return {"pipeline_spec": body["pipeline_spec"]}
        return {"pipeline_version_reference": {key: source[key] for key in ("pipeline_id", "pipeline_version_id")}}

    def _experiment_of(self, body: Body) -> str:
        if experiment := body.get("experiment_id", ""):
            return str(self._find("experiments", "Experiment", experiment)["experiment_id"])
        names = {experiment["display_name"]: key for key, experiment in self.experiments.items()}
        return names["Default"]

    def _find(self, kind: str, title: str, identity: str) -> Body:
        body: Body | None = getattr(self, kind).get(identity)
        if body is None:
            raise Refusal(NOT_FOUND, f"{title} {identity} not found")
        return body

    def _keep(self, kind: str, fields: Body) -> Body:
        identity = self._id()
        made: Body = {_IDS[kind]: identity} | fields
        getattr(self, kind)[identity] = made
        return made

    def _id(self) -> str:
        return str(uuid.UUID(int=next(self._numbers)))

    def _now(self) -> str:
        self.clock += 1
        return written(self.clock)


def _require_short(body: Body) -> None:
    """Refuse texts that are longer than the columns of the database."""
    for key in ("display_name", "description", "service_account"):
        if len(body.get(key, "")) > 255:
            raise Refusal(INTERNAL, "Internal Server Error", f"Error 1406: Data too long for column '{key}'")


def _tags(tags: Mapping[str, str]) -> dict[str, str]:
    if len(tags) > 20 or any("." in key or max(len(key), len(value)) > 63 for key, value in tags.items()):
        raise Refusal(INVALID, "number of tags exceeds maximum of 20 per entity, or one of them is not allowed")
    return dict(tags)


def _six_fields(expression: str) -> str:
    """A cron expression as KFP reads it: five fields are all but the day of the week."""
    return f"{expression} *" if len(expression.split()) == 5 else expression


def _due(schedule: Body, now: float) -> list[float]:
    """When a recurring run should have started runs since the last; without catching up only the last of these."""
    trigger = schedule["trigger"]
    times = trigger.get("cron_schedule") or trigger.get("periodic_schedule") or {"end_time": _EPOCH, "cron": "@daily"}
    bounds = {key: datetime.fromisoformat(times[key]).timestamp() for key in ("start_time", "end_time") if key in times}
    begin = bounds.get("start_time", datetime.fromisoformat(schedule["created_at"]).timestamp())
    last, due = max(schedule.get("last", begin), bounds.get("start_time", 0)), list[float]()
    while True:
        if "cron" in times:
            last = next(times_after(_six_fields(times["cron"]), datetime.fromtimestamp(last, UTC))).timestamp()
        else:
            last += int(times["interval_second"])
        if last > min(now, bounds.get("end_time", now)):
            return due[-1:] if schedule["no_catchup"] else due
        due.append(last)


def _page(kind: str, objects: dict[str, Body], query: Mapping[str, str], scope: str = "") -> Body:
    """One page of a list: filtered, by time, with a token that holds what was asked for and the next place.

    The gateway decodes the JSON of a filter once more than the query was, and MySQL takes A and a for the same.
    """
    page: Body = {"filter": query.get("filter", ""), "sort_by": query.get("sort_by", ""), "first": 0}
    if token := query.get("page_token", ""):
        page = json.loads(base64.b64decode(token))
    size = min(int(query.get("page_size") or 20), 200)
    items = [item for item in objects.values() if query.get(scope) in (None, "", item.get(scope))]
    for predicate in json.loads(unquote_plus(page["filter"]) or "{}").get("predicates", []):
        key, value = predicate["key"], predicate["string_value"].lower()
        if predicate["operation"] == "EQUALS":
            items = [item for item in items if str(item.get(key, "")).lower() == value]
        elif predicate["operation"] == "IS_SUBSTRING":
            items = [item for item in items if value in str(item.get(key, "")).lower()]
        else:
            raise Refusal(INVALID, f"invalid predicate operation: {predicate['operation']}")
    identity = _IDS["recurring_runs" if kind == "recurringRuns" else kind]
    ordered = sorted(items, key=lambda item: (item["created_at"], item[identity]), reverse="desc" in page["sort_by"])
    first = page["first"]
    after = json.dumps(page | {"first": first + size}) if ordered[first + size :] else ""
    shown = ordered[first : first + size]
    return {kind: shown, "total_size": len(ordered), "next_page_token": base64.b64encode(after.encode()).decode()}


_ROUTES: dict[tuple[str, str], Callable[..., Body]] = {
    ("GET", "experiments"): lambda o, q, b: _page("experiments", o.experiments, q),
    ("POST", "experiments"): lambda o, q, b: o.create_experiment(b),
    ("POST", "pipelines"): lambda o, q, b: o.create_pipeline(b),
    ("GET", "pipelines/names/{name}"): lambda o, q, b, name: o.pipeline_by_name(name),
    ("POST", "pipelines/upload_version"): lambda o, q, b: o.upload_version(q, b),
    ("GET", "pipelines/{pipeline_id}/versions"): lambda o, q, b, pipeline: _page(
        "pipeline_versions", o.pipeline_versions, {**q, "pipeline_id": pipeline}, "pipeline_id"
    ),
    ("GET", "pipelines/{pipeline_id}/versions/{pipeline_version_id}"): lambda o, q, b, _, version: o.version(version),
    ("GET", "runs"): lambda o, q, b: _page("runs", o.runs, q, "experiment_id"),
    ("POST", "runs"): lambda o, q, b: o.create_run(b),
    ("GET", "runs/{run_id}"): lambda o, q, b, run: o.run(run),
    ("POST", "runs/{run_id}:terminate"): lambda o, q, b, run: o.terminate_run(run),
    ("GET", "recurringruns"): lambda o, q, b: _page("recurringRuns", o.recurring_runs, q, "experiment_id"),
    ("POST", "recurringruns"): lambda o, q, b: o.create_recurring_run(b),
    ("DELETE", "recurringruns/{recurring_run_id}"): lambda o, q, b, run: o.delete_recurring_run(run, q),
    ("POST", "recurringruns/{recurring_run_id}:enable"): lambda o, q, b, run: o.enable(run),
    ("POST", "recurringruns/{recurring_run_id}:disable"): lambda o, q, b, run: o.enable(run, "DISABLE"),
}


@cache
def swagger() -> dict[str, Any]:
    """The published description of the API, in which a message has no other fields than those described."""
    description: dict[str, Any] = json.loads(Path(__file__).with_name("kfp_v2beta1.swagger.json").read_text())
    for definition in description["definitions"].values():
        if "properties" in definition:
            definition.setdefault("additionalProperties", False)
    return description


@dataclass
class KfpServer:
    """The server, as tests see it.

    Attributes:
        calls: Every call that came in, as `POST runs`, with ids as in the description of the API.
        faults: One of `FAULTS` by the number of the call, from 0.
        lacks: Fields of requests that it does not know, as a server of an older release.
    """

    objects: Objects = field(default_factory=Objects)
    token: str = ""
    multi_user: bool = False
    version: str = "2.17.0"
    endpoint: str = ""
    calls: list[str] = field(default_factory=list)
    namespaces: list[str] = field(default_factory=list)
    faults: dict[int, str] = field(default_factory=dict)
    errors: deque[str] = field(default_factory=deque)
    lacks: tuple[str, ...] = ()
    late: float = 0.3
    down: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def writes(self) -> list[str]:
        """The calls that change something."""
        return [call for call in self.calls if not call.startswith("GET ")]

    def answer(self, method: str, target: str, headers: Mapping[str, str], sent: bytes) -> tuple[int, Body] | None:
        """The status and body that go out; None for a connection that breaks."""
        with self._lock:
            if self.down:
                return None
            url = urlsplit(target)
            route, ids = _route(method, url.path.removeprefix("/apis/v2beta1/"))
            number = len(self.calls)
            self.calls.append(f"{method} {route}")
            fault = self.faults.pop(number, "")
            if fault == "before":
                return 503, {"code": 14, "message": "Service unavailable"}
            if fault == "down":
                self.down = True
                return None
            status, body = self._done(method, route, ids, dict(parse_qsl(url.query)), headers, sent)
            self.down = fault == "down after"
        if fault == "slow":
            time.sleep(self.late)
        if fault == "after":
            return 502, {"message": "bad gateway"}
        return None if fault in ("dropped", "down after") else (status, body)

    def _done(
        self, method: str, route: str, ids: list[str], query: dict[str, str], headers: Mapping[str, str], sent: bytes
    ) -> tuple[int, Body]:
        if route == "healthz":
            health = {"commit_sha": "c0ffee", "tag_name": self.version, "pipeline_store": "database"}
            return 200, health | {"multi_user": self.multi_user}
        uploads = route == "pipelines/upload_version"
        try:
            if self.token and headers.get("Authorization", "") != f"Bearer {self.token}":
                raise Refusal(UNAUTHENTICATED, "Failed to check authorization.")
            if (method, route) not in _ROUTES:
                raise Refusal(NOT_FOUND, "Not Found")
            arguments: Any = _file(headers, sent) if uploads else _body(method, route, sent)
            if unknown := [key for key in self.lacks if not uploads and key in arguments]:
                raise Refusal(INVALID, f'proto: (line 1:2): unknown field "{unknown[0]}"')
            self.namespaces.append(
                query.get("namespace", "") if uploads else {**arguments, **query}.get("namespace", "")
            )
            answer = _filled(_ROUTES[method, route](self.objects, query, arguments, *ids))
        except Refusal as refusal:
            status, message = _STATUS[refusal.code], refusal.message
            if uploads:
                return status, {"error_message": message, "error_details": refusal.internal}
            details = {"@type": "type.googleapis.com/google.rpc.Status", "code": refusal.code, "message": message}
            return status, {"code": refusal.code, "message": refusal.internal, "details": [details]}
        schema = swagger()["paths"][f"/apis/v2beta1/{route}"][method.lower()]["responses"]["200"]["schema"]
        self.errors.extend(f"{method} {route}: {problem}" for problem in _problems(answer, schema))
        return 200, json.loads(json.dumps(answer))


def _route(method: str, path: str) -> tuple[str, list[str]]:
    """The route of a path as the description of the API writes it, and its ids."""
    for _, route in sorted(_ROUTES, key=lambda key: key[1].count("{")):
        pattern = re.sub(r"\\{[a-z_]+\\}", "([^/:]+)", re.escape(route))
        if (method, route) in _ROUTES and (match := re.fullmatch(pattern, path)):
            return route, [unquote(identity) for identity in match.groups()]
    return path, []


def _body(method: str, route: str, sent: bytes) -> Body:
    """The JSON of a request, which may hold nothing that the API does not know."""
    parameters = swagger()["paths"][f"/apis/v2beta1/{route}"][method.lower()].get("parameters", [])
    schema = next((parameter["schema"] for parameter in parameters if parameter["in"] == "body"), None)
    body: Body = json.loads(sent or b"{}") if schema else {}
    if schema and (problems := _problems(body, schema)):
        raise Refusal(INVALID, f"proto: {problems[0]}")
    return body


def _file(headers: Mapping[str, str], sent: bytes) -> tuple[str, bytes]:
    whole = b"Content-Type: " + headers.get("Content-Type", "").encode() + b"\r\n\r\n" + sent
    message = email.message_from_bytes(whole, policy=email.policy.HTTP)
    for part in message.iter_parts() if message.is_multipart() else ():
        if part.get_param("name", header="Content-Disposition") == "uploadfile":
            return str(part.get_filename()), part.get_payload(decode=True)  # type: ignore[return-value]
    raise Refusal(INVALID, "Failed to read pipeline from file")


def _filled(answer: Any) -> Any:
    """An answer without its empty fields, which the gateway leaves out; what users wrote stays as it is."""
    if isinstance(answer, dict):
        kept, kept_here = ("parameters", "pipeline_spec", "tags", "plugins_input"), ("last", "resource", "fired")
        whole = {key: value if key in kept else _filled(value) for key, value in answer.items() if key not in kept_here}
        # A message that was given is answered even if it is empty, as the trigger of what starts only by hand.
        return {
            key: value for key, value in whole.items() if value not in ("", 0, False, None, [], {}) or key == "trigger"
        }
    return [_filled(item) for item in answer] if isinstance(answer, list) else answer


def _problems(value: Any, schema: Body) -> list[str]:
    """What of a JSON value the description of the API does not allow."""
    definitions = swagger()["definitions"]
    return [error.message for error in Draft4Validator(schema | {"definitions": definitions}).iter_errors(value)]


class _Handler(Handler):
    wbufsize = -1  # One packet for each answer: two would wait for each other.
    disable_nagle_algorithm = True
    kfp: KfpServer

    def _serve(self) -> None:
        answered = self.kfp.answer(self.command, self.path, dict(self.headers.items()), self.sent())
        if answered is not None:
            self.answer(*answered)
            return
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    do_GET = do_POST = do_DELETE = _serve


@contextmanager
def serving(**attributes: Any) -> Iterator[KfpServer]:
    """A server on a port of this machine; it fails the test where it gave an answer that the API does not know."""
    kfp = KfpServer(**attributes)
    with listening(_Handler, kfp=kfp) as port:
        kfp.endpoint = f"http://127.0.0.1:{port}"
        yield kfp
    assert not kfp.errors, list(kfp.errors)
