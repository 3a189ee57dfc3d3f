"""A small stand-in for the Kubeflow Model Registry's REST API v1alpha3, which refuses what the real one refuses.

Written from its OpenAPI file and its server: routes, required fields (422), fields that it does not know and values
that it cannot read (400), names that are there already (409), what is not there (404), pages and their tokens, custom
properties that an update replaces as a whole, and a search by name that takes `_` and `%` for wildcards.
"""

import base64
import itertools
import json
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.stand_ins.http_server import Handler, listening

Resource = dict[str, Any]
_PREFIX = "/api/model_registry/v1alpha3/"
_BASE = {"customProperties", "description", "externalId"}
_UPDATES = {
    "registered_models": _BASE | {"owner", "state", "readme", "maturity", "language", "tasks", "provider", "license"},
    "model_versions": _BASE | {"state", "author"},
    "model_artifacts": _BASE
    | {"artifactType", "modelFormatName", "modelFormatVersion", "storageKey", "storagePath", "serviceAccountName"}
    | {f"modelSource{part}" for part in ("Kind", "Class", "Group", "Id", "Name")}
    | {"uri", "state"},
}
_REQUIRED = {"registered_models": ("name",), "model_versions": ("name", "registeredModelId"), "model_artifacts": ()}
_ARTIFACT_STATES = {"UNKNOWN", "PENDING", "LIVE", "MARKED_FOR_DELETION", "DELETED", "ABANDONED", "REFERENCE"}
_STATES = {
    "registered_models": {"LIVE", "ARCHIVED"},
    "model_versions": {"LIVE", "ARCHIVED"},
    "model_artifacts": _ARTIFACT_STATES,
}
_VALUES = {"MetadataStringValue": ("string_value", str), "MetadataDoubleValue": ("double_value", float)}


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class ModelRegistry:
    """The state of the stand-in: resources by kind, then by id; the parent of an artifact is its version.

    A fault of a coming request is an HTTP status before it is done, `lost` for an answer that is cut off after it was
    done, or None.
    """

    resources: dict[str, dict[str, Resource]] = field(default_factory=lambda: {kind: {} for kind in _UPDATES})
    parents: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    faults: deque[int | str | None] = field(default_factory=deque)
    token: str = ""
    url: str = ""
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _clock: Iterator[int] = field(default_factory=lambda: itertools.count(1_700_000_000_000))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def handle(self, method: str, target: str, body: bytes, token: str) -> tuple[int, Resource]:
        """Answer a request with a status and a body."""
        address = urlsplit(target)
        with self._lock:
            try:
                if self.token and token != f"Bearer {self.token}":
                    raise Refused(401, "Unauthorized")
                if not address.path.startswith(_PREFIX):
                    raise Refused(404, "404 page not found")
                query = {name: values[-1] for name, values in parse_qs(address.query).items()}
                return self._route(method, address.path.removeprefix(_PREFIX).split("/"), query, body)
            except Refused as error:
                return error.status, {"code": HTTPStatus(error.status).phrase, "message": str(error)}

    def _route(self, method: str, path: list[str], query: dict[str, str], body: bytes) -> tuple[int, Resource]:
        match method, path:
            case "GET", ["registered_model"]:
                return 200, self._find(query)
            case "GET", [kind] if kind in _UPDATES:
                return 200, self._page(list(self.resources[kind].values()), query)
            case "POST", [("registered_models" | "model_versions") as kind]:
                return 201, self._create(kind, _read(body), None)
            case "GET", [kind, known] if kind in _UPDATES:
                return 200, self._get(kind, known)
            case "PATCH", [kind, known] if kind in _UPDATES:
                return 200, self._update(kind, known, _read(body))
            case "GET", ["registered_models", known, "versions"]:
                self._get("registered_models", known)
                return 200, self._page(self._below(known, "model_versions"), query)
            case "GET", ["model_versions", known, "artifacts"]:
                self._get("model_versions", known)
                return 200, self._page(self._below(known, "model_artifacts"), query)
            case "POST", ["model_versions", known, "artifacts"]:
                self._get("model_versions", known)
                return 201, self._create("model_artifacts", _read(body), known)
        raise Refused(404, "404 page not found")

    def _below(self, parent: str, kind: str) -> list[Resource]:
        return [resource for key, resource in self.resources[kind].items() if self.parents.get(key) == parent]

    def _get(self, kind: str, key: str) -> Resource:
        if not key.isdigit():
            raise Refused(400, f"invalid ID: {key}")
        if key not in self.resources[kind]:
            raise Refused(404, f"no resource found for id {key}")
        return self.resources[kind][key]

    def _find(self, query: dict[str, str]) -> Resource:
        if "name" not in query:
            raise Refused(400, "invalid parameters call, supply either name or externalId")
        like = re.escape(query["name"]).replace("_", ".").replace("%", ".*")
        named = [
            registered_model
            for registered_model in self.resources["registered_models"].values()
            if re.fullmatch(like, registered_model["name"])
        ]
        if len(named) != 1:
            raise Refused(404, f"{'multiple' if named else 'no'} registered models found for name={query['name']}")
        return named[0]

    def _page(self, listed: list[Resource], query: dict[str, str]) -> Resource:
        if not query.get("pageSize", "0").isdigit():
            raise Refused(400, "pageSize: invalid syntax")
        size, after = int(query.get("pageSize", 0)), 0
        if token := query.get("nextPageToken", ""):
            try:
                after = int(base64.b64decode(token, validate=True))
            except ValueError:
                raise Refused(500, "invalid nextPageToken") from None
        rest = [item for item in listed if int(item["id"]) > after]
        items = rest[:size] if size else rest
        token = base64.b64encode(items[-1]["id"].encode()).decode() if len(items) < len(rest) else ""
        return {"items": items, "nextPageToken": token, "pageSize": size, "size": len(items)}

    def _create(self, kind: str, body: Resource, parent: str | None) -> Resource:
        if kind == "model_artifacts" and body.get("artifactType") != "model-artifact":
            raise Refused(400, "invalid artifact type, must be either ModelArtifact or DocArtifact")
        _require_known(kind, body, _UPDATES[kind] | {"name", "registeredModelId"} & {"name", *_REQUIRED[kind]})
        for name in _REQUIRED[kind]:
            if not body.get(name):
                raise Refused(422, f"required field '{name}' is zero value.")
        owner = body.get("registeredModelId") if kind == "model_versions" else parent
        if kind == "model_versions":
            self._get("registered_models", str(owner))
        siblings = self._below(owner, kind) if owner else list(self.resources[kind].values())
        if any(sibling["name"] == body["name"] for sibling in siblings):
            raise Refused(409, f"{kind} with name {body['name']} already exists")
        number = str(next(self._ids))
        stamp = str(next(self._clock))
        made = {"state": "LIVE"} | body | {"id": number, "createTimeSinceEpoch": stamp}
        self.resources[kind][number] = made | {"lastUpdateTimeSinceEpoch": stamp}
        if owner:
            self.parents[number] = owner
        return self.resources[kind][number]

    def _update(self, kind: str, key: str, body: Resource) -> Resource:
        _require_known(kind, body, _UPDATES[kind])
        content = self._get(kind, key)
        content |= {name: value for name, value in body.items() if value is not None}
        content["lastUpdateTimeSinceEpoch"] = str(next(self._clock))
        return content


def _read(body: bytes) -> Resource:
    try:
        read = json.loads(body)
    except ValueError as error:
        raise Refused(400, str(error)) from None
    if not isinstance(read, dict):
        raise Refused(400, "json: cannot unmarshal array into Go value")
    return read


def _require_known(kind: str, body: Resource, fields: set[str]) -> None:
    if unknown := sorted(set(body) - fields):
        raise Refused(400, f'json: unknown field "{unknown[0]}"')
    if body.get("state") not in {None, *_STATES[kind]}:
        raise Refused(400, f"invalid value '{body['state']}' for {kind} state")
    for name, value in (body.get("customProperties") or {}).items():
        member, content = _VALUES.get(value.get("metadataType"), ("", object))
        if not member or set(value) != {"metadataType", member} or not isinstance(value[member], content):
            raise Refused(400, f"bad request: metadataType not found for {name}: {value}")


@contextmanager
def model_registry() -> Iterator[ModelRegistry]:
    """A running stand-in."""
    registry = ModelRegistry()

    class RegistryHandler(Handler):
        def do_GET(self) -> None:
            body = self.sent()
            registry.requests.append(f"{self.command} {urlsplit(self.path).path.removeprefix(_PREFIX)}")
            fault = registry.faults.popleft() if registry.faults else None
            if isinstance(fault, int):
                self.answer(fault, {"code": HTTPStatus(fault).phrase, "message": "a fault"})
                return
            answer = registry.handle(self.command, self.path, body, self.headers.get("Authorization", ""))
            if fault == "lost":
                self.close_connection = True
                return
            self.answer(*answer)

        do_POST = do_PATCH = do_GET

    with listening(RegistryHandler) as port:
        registry.url = f"http://127.0.0.1:{port}"
        yield registry
