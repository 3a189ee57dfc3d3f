"""A server that speaks the API of Kubeflow Pipelines (v2beta1) over HTTP, for tests: `with serving() as server`.

`kfp_objects.py` does what is asked for; here are routes, JSON, tokens, errors of the gateway, and faults. Every
body and every answer is held against the published description of the API (`kfp_v2beta1.swagger.json`).
"""

import email
import email.policy
import json
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from gatehouse.kfp_api.connection import Patience
from tests.stand_ins.http_server import Handler, listening
from tests.stand_ins.kfp_lists import (
    ABORTED,
    DENIED,
    EXISTS,
    INTERNAL,
    INVALID,
    NOT_FOUND,
    UNAUTHENTICATED,
    Body,
    Refusal,
)
from tests.stand_ins.kfp_objects import Objects

_STATUS = {
    INVALID: 400,
    UNAUTHENTICATED: 401,
    DENIED: 403,
    NOT_FOUND: 404,
    EXISTS: 409,
    ABORTED: 409,
    INTERNAL: 500,
}
FAULTS = ("before", "after", "dropped", "slow", "down", "down after")
"""What can befall a call: an error before or after it has its effect, a connection that breaks after it, an answer that
comes too late, and a server that is away from then on, before or after the effect."""
PERSISTENT = Patience(request=5.0, retry=5.0, first_pause=0.002, longest_pause=0.004, settle=5.0, poll=0.005)
IMPATIENT = replace(PERSISTENT, retry=0.05, settle=0.3)


def impatient(fault: str) -> Patience:
    """Of who gives up at a fault. Only a late answer needs a short wait, which a busy machine may exceed too."""
    return replace(IMPATIENT, request=0.15) if fault == "slow" else IMPATIENT


_ROUTES: dict[tuple[str, str], Callable[..., Body]] = {
    ("GET", "experiments"): lambda o, u, q, b: o.list_experiments(u, q),
    ("POST", "experiments"): lambda o, u, q, b: o.create_experiment(u, b),
    ("GET", "experiments/{experiment_id}"): lambda o, u, q, b, experiment: o.experiment(u, experiment),
    ("GET", "pipelines"): lambda o, u, q, b: o.list_pipelines(u, q),
    ("POST", "pipelines"): lambda o, u, q, b: o.create_pipeline(u, b),
    ("GET", "pipelines/names/{name}"): lambda o, u, q, b, name: o.pipeline_by_name(u, name, q),
    ("POST", "pipelines/upload_version"): lambda o, u, q, b: o.upload_version(u, q, b),
    ("GET", "pipelines/{pipeline_id}"): lambda o, u, q, b, pipeline: o.pipeline(u, pipeline),
    ("DELETE", "pipelines/{pipeline_id}"): lambda o, u, q, b, pipeline: o.delete_pipeline(u, pipeline),
    ("GET", "pipelines/{pipeline_id}/versions"): lambda o, u, q, b, pipeline: o.list_versions(u, pipeline, q),
    ("GET", "pipelines/{pipeline_id}/versions/{pipeline_version_id}"): lambda o, u, q, b, *ids: o.version(u, *ids),
    ("GET", "runs"): lambda o, u, q, b: o.list_runs(u, q),
    ("POST", "runs"): lambda o, u, q, b: o.create_run(u, b),
    ("GET", "runs/{run_id}"): lambda o, u, q, b, run: o.run(u, run),
    ("DELETE", "runs/{run_id}"): lambda o, u, q, b, run: o.delete_run(u, run),
    ("POST", "runs/{run_id}:archive"): lambda o, u, q, b, run: o.archive_run(u, run),
    ("POST", "runs/{run_id}:unarchive"): lambda o, u, q, b, run: o.archive_run(u, run, archived=False),
    ("POST", "runs/{run_id}:retry"): lambda o, u, q, b, run: o.retry_run(u, run),
    ("POST", "runs/{run_id}:terminate"): lambda o, u, q, b, run: o.terminate_run(u, run),
    ("GET", "recurringruns"): lambda o, u, q, b: o.list_recurring_runs(u, q),
    ("POST", "recurringruns"): lambda o, u, q, b: o.create_recurring_run(u, b),
    ("GET", "recurringruns/{recurring_run_id}"): lambda o, u, q, b, each: o.recurring_run(u, each),
    ("DELETE", "recurringruns/{recurring_run_id}"): lambda o, u, q, b, each: o.delete_recurring_run(u, each, q),
    ("POST", "recurringruns/{recurring_run_id}:enable"): lambda o, u, q, b, each: o.enable(u, each),
    ("POST", "recurringruns/{recurring_run_id}:disable"): lambda o, u, q, b, each: o.enable(u, each, enabled=False),
}

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


@cache
def swagger() -> dict[str, Any]:
    """The published description of the API."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("kfp_v2beta1.swagger.json").read_text())
    return found


@dataclass
class KfpServer:
    """The server, as tests see it.

    Attributes:
        objects: What it keeps.
        tokens: Which user a bearer token stands for; a token that is not there is refused in multi-user mode.
        version: The release that it tells.
        calls: Every call that came in, as `POST runs`, with ids as in the description of the API.
        faults: What befalls calls, by their number from 0: one of `FAULTS`.
        answers: Every good answer with its route, as it went out.
        lacks: Fields of requests that it does not know, as a server of an older release.
        late: How long a slow answer takes, in seconds.
        down: Whether it drops every connection.
    """

    objects: Objects = field(default_factory=Objects)
    tokens: dict[str, str] = field(default_factory=dict)
    version: str = "2.17.0"
    endpoint: str = ""
    calls: list[str] = field(default_factory=list)
    faults: dict[int, str] = field(default_factory=dict)
    answers: list[tuple[str, Body]] = field(default_factory=list)
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
            return 200, health | {"multi_user": self.objects.multi_user}
        uploads = route == "pipelines/upload_version"
        try:
            if (method, route) not in _ROUTES:
                raise Refusal(NOT_FOUND, "Not Found")
            user = self.tokens.get(headers.get("Authorization", "").removeprefix("Bearer "), "")
            given = _file(headers, sent) if uploads else _body(method, route, sent)
            if unknown := [key for key in self.lacks if not uploads and key in given]:
                raise Refusal(INVALID, f'proto: (line 1:2): unknown field "{unknown[0]}"')
            answer = _filled(_ROUTES[method, route](self.objects, user, query, given, *ids))
        except Refusal as refusal:
            return _refused(refusal, uploads)
        if problems := list(_problems(answer, _answer_schema(method, route), "")):
            self.errors.extend(f"{method} {route}: {problem}" for problem in problems)
        answer = json.loads(json.dumps(answer))
        self.answers.append((f"{method} {route}", answer))
        return 200, answer


def _refused(refusal: Refusal, uploads: bool) -> tuple[int, Body]:
    status = _STATUS[refusal.code]
    if uploads:
        return status, {"error_message": refusal.message, "error_details": refusal.internal}
    details = {"@type": "type.googleapis.com/google.rpc.Status", "code": refusal.code, "message": refusal.message}
    return status, {"code": refusal.code, "message": refusal.internal, "details": [details]}


def _route(method: str, path: str) -> tuple[str, list[str]]:
    """The route of a path as the description of the API writes it, and its ids."""
    for _, route in sorted(_ROUTES, key=lambda each: each[1].count("{")):
        pattern = re.sub(r"\\{[a-z_]+\\}", "([^/:]+)", re.escape(route))
        if (method, route) in _ROUTES and (found := re.fullmatch(pattern, path)):
            return route, [unquote(each) for each in found.groups()]
    return path, []


def _body(method: str, route: str, sent: bytes) -> Body:
    """The JSON of a request, which may hold nothing that the API does not know."""
    parameters = swagger()["paths"][f"/apis/v2beta1/{route}"][method.lower()].get("parameters", [])
    schema = next((each["schema"] for each in parameters if each["in"] == "body"), None)
    if schema is None:
        return {}
    try:
        body: Body = json.loads(sent or b"{}")
    except ValueError as error:
        raise Refusal(INVALID, f"proto: syntax error: {error}") from error
    if problems := list(_problems(body, schema, "")):
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
    return [_filled(each) for each in answer] if isinstance(answer, list) else answer


def _answer_schema(method: str, route: str) -> dict[str, Any]:
    found: dict[str, Any] = swagger()["paths"][f"/apis/v2beta1/{route}"][method.lower()]["responses"]["200"]["schema"]
    return found


def _problems(value: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
    """What of a JSON value the description of the API does not know: fields, types and words."""
    if "$ref" in schema:
        schema = swagger()["definitions"][schema["$ref"].rpartition("/")[2]]
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        for key, each in value.items() if isinstance(value, dict) else [("", None)]:
            if key not in schema["properties"]:
                yield f'{where}: unknown field "{key}"'
            else:
                yield from _problems(each, schema["properties"][key], f"{where}.{key}")
    elif kind == "array":
        for each in value:
            yield from _problems(each, schema["items"], where)
    elif kind == "string" and schema.get("format") != "int64" and not isinstance(value, str):
        yield f"{where}: invalid value for string field: {value!r}"
    elif kind == "boolean" and not isinstance(value, bool):
        yield f"{where}: invalid value for bool field: {value!r}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{where}: invalid value for enum field: {value!r}"


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
