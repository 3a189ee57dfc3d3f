"""The ledger in the Kubeflow Model Registry: a registered model, its versions, and the location of each model.

Entries that people add there are kept: only properties that begin with `gatehouse.` or `test_`, aliases, and states are
written. An alias is a label, which in this registry is a property without a value. A version that is archived or rolled
back is archived there too.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gatehouse.errors import GatehouseError
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.mlflow_projection import MODEL, VERDICT, candidate_metrics, origin_tags, status_tags
from gatehouse.registry.state import ALIASES, ModelVersion, State
from gatehouse.runtime.redaction import require_encoded
from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.place import Place

SERVER, AUTHOR, TOKEN = "GATEHOUSE_MODEL_REGISTRY", "GATEHOUSE_MODEL_REGISTRY_AUTHOR", "GATEHOUSE_MODEL_REGISTRY_TOKEN"
_PREFIX = "/api/model_registry/v1alpha3/"
_TOKEN_PATH, _TOKEN_FILE = "KF_PIPELINES_SA_TOKEN_PATH", "/var/run/secrets/kubernetes.io/serviceaccount/token"
_TRANSIENT = (429, 500, 502, 503, 504)
_ATTEMPTS, _BACKOFF, _TIMEOUT, _PAGE = 3, 0.5, 20, 100
_OWN_NAMES = ("gatehouse.", "test_")
Resource = dict[str, Any]


class ModelRegistryError(GatehouseError):
    """The Model Registry does not answer or refuses a request; the next projection tries again."""


@dataclass(frozen=True)
class RegistryApi:
    """The parts of the registry's REST API, v1alpha3, that a projection needs; methods raise `ModelRegistryError`."""

    address: str
    author: str

    def every(self, path: str) -> Iterator[Resource]:
        """Every resource of a list, page by page."""
        token = ""
        while True:
            page = self._send("GET", path, params={"pageSize": _PAGE} | ({"nextPageToken": token} if token else {}))
            yield from page.get("items") or ()
            token = page.get("nextPageToken", "")
            if not token:
                return

    def create(self, path: str, body: Resource) -> Resource | None:
        """Create a resource; None if one with this name exists."""
        return self._send("POST", path, body, exists=409) or None

    def update(self, path: str, body: Resource) -> None:
        """Change fields of a resource; `customProperties`, if given, are replaced as a whole."""
        self._send("PATCH", path, body)

    def _send(
        self,
        method: str,
        path: str,
        body: Resource | None = None,
        params: Mapping[str, Any] | None = None,
        exists: int = 0,
    ) -> Resource:
        """Send a request, with retries: a repeated creation does no harm, as the registry refuses it.

        No redirect is followed, so that the token reaches only the server that was named. The answer to the status
        `exists` is empty.
        """
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        require_encoded(self.address, SERVER, bare=True)
        retries = Retry(
            total=_ATTEMPTS - 1,
            status_forcelist=_TRANSIENT,
            allowed_methods=None,
            backoff_factor=_BACKOFF,
            raise_on_status=False,
            retry_after_max=_TIMEOUT,
        )
        token = os.environ.get(TOKEN, "")
        token_file = Path(os.environ.get(_TOKEN_PATH, "") or _TOKEN_FILE)
        if not token and self.address.startswith("https://") and token_file.is_file():
            token = token_file.read_text().strip()  # Of the pod's service account; it changes while a pod runs.

        def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
            """Add the token; given as `auth`, it keeps a .netrc from adding another one."""
            request.headers.update({"Authorization": f"Bearer {token}"} if token else {})
            return request

        with requests.Session() as session:
            session.mount(f"{self.address.partition('://')[0]}://", HTTPAdapter(max_retries=retries))
            try:
                answer = session.request(
                    method,
                    self.address + _PREFIX + path,
                    params=params,
                    json=body,
                    auth=authorize,
                    timeout=_TIMEOUT,
                    allow_redirects=False,
                )
                if exists and answer.status_code == exists:
                    return {}
                if answer.status_code < 300:
                    content: Resource = answer.json()
                    return content
                problem = f"answered {answer.status_code} to {method} {path}: {answer.text[:2000].strip()}"
            except (requests.RequestException, ValueError) as error:
                problem = f"gave no answer to {method} {path}: {type(error).__name__}: {error}"
        raise ModelRegistryError(
            f"The Model Registry at {self.address} {problem}. Expected the API v1alpha3 of a Kubeflow Model Registry "
            f"there; {SERVER} names it."
        )


def registry_here() -> RegistryApi | None:
    """The Model Registry that the environment names, or None."""
    server = os.environ.get(SERVER, "").strip().rstrip("/")
    return RegistryApi(server, os.environ.get(AUTHOR, "") or "gatehouse") if server else None


@dataclass(frozen=True)
class InModelRegistry:
    """The Model Registry as a place that shows ledgers."""

    place: Place
    api: RegistryApi
    title = "The Model Registry"

    @contextmanager
    def writing(self) -> Iterator[Callable[[Ledger, State, int], None]]:
        """A function that updates the registry to a ledger's state, given how many records it shows already."""
        yield partial(_show, self.place.store, self.api)


def registry_of(store: ArtifactStore) -> InModelRegistry | None:
    """The Model Registry that `GATEHOUSE_MODEL_REGISTRY` names, or None."""
    api = registry_here()
    if api is None:
        return None
    return InModelRegistry(Place(store, api.address, f"model-registry-{sha256_bytes(api.address.encode())[:16]}"), api)


def _show(store: ArtifactStore, api: RegistryApi, ledger: Ledger, state: State, shown: int) -> None:
    """Create what is missing by name, then set what changed.

    The stage of a version is set last, so a version that has it also has its artifact. If `shown` is 0, the artifacts
    of all versions are checked.
    """
    if not state.versions:
        return
    name = ledger.model_name
    about = {"owner": api.author, "customProperties": _properties({"gatehouse.store": store.address})}
    model = _ensure(api, "registered_models", "registered_models", name, about)
    records = ledger.records()
    path = f"registered_models/{model['id']}/versions"
    entries = {entry["name"]: entry for entry in api.every(path)}
    for version in state.versions:
        run = str(records[version.registered_at - 1].provenance.get("run", ""))
        new = {
            "author": api.author,
            "registeredModelId": model["id"],
            "customProperties": _properties(origin_tags(version)),
        }
        number = str(version.version)
        entry = entries.get(number) or _ensure(api, path, "model_versions", number, new)
        model_there = entry.get("customProperties", {}).get(MODEL, {}).get("string_value", "")
        if model_there != version.model:
            raise ModelRegistryError(
                f"Version {number} of {name} in the Model Registry at {api.address} is {model_there or 'not ours'}, "
                f"expected {version.model}. Rename the model in project.yaml, or remove the version there."
            )
        change = _change(entry, _version_entry(store, state, version, run))
        if change or not shown:
            reference = Reference.parse(version.model)
            artifact = {
                "uri": store.address_of(reference),
                "modelFormatName": "gatehouse",
                "modelFormatVersion": "1",
                "state": "LIVE",
                "customProperties": _properties({MODEL: version.model, "gatehouse.digest": reference.digest}),
            }
            if run:
                artifact |= {"modelSourceKind": "pipelines", "modelSourceClass": "pipelinerun", "modelSourceId": run}
            kind = {"artifactType": "model-artifact"}
            artifacts = f"model_versions/{entry['id']}/artifacts"
            artifact_entry = _ensure(api, artifacts, artifacts, name, kind | artifact)
            if artifact_change := _change(artifact_entry, artifact):
                api.update(f"model_artifacts/{artifact_entry['id']}", kind | artifact_change)
        if change:
            api.update(f"model_versions/{entry['id']}", change)


def _ensure(api: RegistryApi, listed: str, created: str, name: str, body: Resource) -> Resource:
    """The resource with this name from a list; it is created if it is missing.

    Names are compared here: the registry's own search by name takes `_` and `%` for wildcards.
    """
    for attempt in range(2):
        if entry := next((entry for entry in api.every(listed) if entry.get("name") == name), None):
            return entry
        if attempt == 0 and (made := api.create(created, {"name": name} | body)):
            return made
    raise ModelRegistryError(
        f"The Model Registry at {api.address} says that {name} exists, but does not list it under {listed}. Give this "
        "account the right to read what others registered."
    )


def _version_entry(store: ArtifactStore, state: State, version: ModelVersion, run: str) -> Resource:
    last = state.last_verdict(version.model)
    verdict = last[1].summary if last else ""
    aliases = state.aliases_of(version.version)
    tags = origin_tags(version) | status_tags(state, version) | {VERDICT: verdict, "gatehouse.run": run}
    tags |= {"gatehouse.digest": Reference.parse(version.model).digest}
    named = {name if name.startswith(_OWN_NAMES) else f"gatehouse.tag.{name}": value for name, value in tags.items()}
    properties = _properties({name: value for name, value in named.items() if value} | dict.fromkeys(aliases, ""))
    for name, number in candidate_metrics(store, version.evaluation).items():
        properties[name] = {"metadataType": "MetadataDoubleValue", "double_value": number}
    return {
        "description": f"{tags['gatehouse.status']}; the gate said {verdict}",
        "state": "ARCHIVED" if version.ended else "LIVE",
        "customProperties": properties,
    }


def _properties(values: Mapping[str, str]) -> Resource:
    return {name: {"metadataType": "MetadataStringValue", "string_value": text} for name, text in values.items()}


def _change(entry: Resource, fields: Resource) -> Resource:
    """The fields in which a resource differs from `fields`; properties that people added to it are kept."""
    present: dict[str, Any] = entry.get("customProperties") or {}
    added = {name: value for name, value in present.items() if not name.startswith(_OWN_NAMES) and name not in ALIASES}
    merged = fields | {"customProperties": added | fields["customProperties"]}
    return {field: value for field, value in merged.items() if entry.get(field) != value}
