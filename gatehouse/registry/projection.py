"""Copies of the ledger in other places: MLflow, and the Kubeflow Model Registry if one is set.

The ledger decides. Its copies (projections) are written after it changed, also where an interrupted write left them
incomplete, and are never read for a decision. In the Model Registry, entries that people add are kept: only properties
that begin with `gatehouse.` or `test_`, aliases, and states are written. An alias is a label, which in that registry is
a property without a value. A version that is archived or rolled back is archived there too.

As a program it shows runs that have ended: their models, ledgers and stages. The tasks of a local run leave this to one
process, because importing MLflow takes about two seconds in each process; tasks in pods show what they made themselves.
"""

import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatehouse.errors import GatehouseError
from gatehouse.registry.ledger import ALIASES, Ledger, ModelVersion, State
from gatehouse.reports.advice import advised
from gatehouse.runtime.redaction import require_encoded
from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.records import read_record
from gatehouse.store.reference import Reference
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import Point, Tracking, log, short, tracking_of
from gatehouse.tracking.place import LATER, Place, is_shown_later, warning_on_failure
from gatehouse.tracking.projection import (
    all_is_shown,
    end_shown,
    leave_ledger,
    left_by,
    runs_left,
    show_training,
    track_experiment,
    track_run,
    track_training,
    was_stopped,
)
from gatehouse.tracking.provenance import PRICES, lineage_tags
from gatehouse.tracking.sending import send_rest

if TYPE_CHECKING:
    from mlflow import MlflowClient


MODEL, EVALUATION, VERDICT = "gatehouse.model", "gatehouse.evaluation", "gatehouse.verdict"


def origin_tags(version: ModelVersion) -> dict[str, str]:
    """Facts that never change: the model, and all artifacts it was made from."""
    return lineage_tags(version.lineage) | {MODEL: version.model}


def status_tags(state: State, version: ModelVersion) -> dict[str, str]:
    """The stage of a version, the evaluation that it was registered with, and its tags."""
    status = version.ended or " ".join(state.aliases_of(version.version)) or state.stage_of(version)
    tags = {"gatehouse.version": str(version.version), "gatehouse.status": status, EVALUATION: version.evaluation}
    return tags | dict(version.tags)


def candidate_metrics(store: ArtifactStore, evaluation: str) -> dict[str, float]:
    """The candidate's metrics on the test rows, by the names that are shown."""
    metrics = store.read_json(evaluation, "metrics.json")
    return {f"test_{name}": float(value) for name, value in metrics["candidate"].items()}


@dataclass(frozen=True)
class InMlflow:
    """MLflow as a place that shows ledgers; MLflow is imported only for writing."""

    place: Tracking
    title = "MLflow"

    @contextmanager
    def writing(self) -> Iterator[Callable[[Ledger, State, int], None]]:
        """A connection: a function that updates MLflow to a ledger's state, given how many records it shows already."""
        with self.place.client() as client:
            yield partial(_show_in_mlflow, self.place, client)


def _show_in_mlflow(tracking: Tracking, client: "MlflowClient", ledger: Ledger, state: State, shown: int) -> None:
    """Log new verdicts to the runs that trained the candidates; create missing versions; set tags and aliases."""
    for number, verdict in state.verdicts:
        if number <= shown:
            continue
        run = show_training(tracking, client, Reference.parse(verdict.subject.model))
        if (run.data.tags.get(EVALUATION), run.data.tags.get(VERDICT)) != (verdict.evaluation, verdict.summary):
            metrics = candidate_metrics(tracking.store, verdict.evaluation)
            points: list[Point] = [(name, value, 0) for name, value in metrics.items()]
            tags = {VERDICT: verdict.summary, "gatehouse.reasons": "\n".join(advised(verdict.reasons))}
            log(client, run, points=points, tags=tags | {EVALUATION: verdict.evaluation})
    if not state.versions:
        return

    name = ledger.model_name
    if name not in {model.name for model in client.search_registered_models(f"name = '{name}'")}:
        client.create_registered_model(name, tags={"gatehouse.store": tracking.store.address})
    entries = {entry.tags.get(MODEL, ""): entry for entry in client.search_model_versions(f"name = '{name}'")}
    for version in state.versions:
        if version.model not in entries:
            run = show_training(tracking, client, Reference.parse(version.model))
            source = tracking.store.address_of(version.model)
            if tracking.uri.startswith("http") and isinstance(tracking.store.objects, LocalObjects):
                source = f"gatehouse://local/{version.model}"  # MLflow servers refuse local paths.
            entries[version.model] = client.create_model_version(
                name, source=source, run_id=str(run.info.run_id), tags=short(origin_tags(version))
            )
        entry = entries[version.model]
        for tag, value in status_tags(state, version).items():
            if entry.tags.get(tag) != value:
                client.set_model_version_tag(name, str(entry.version), tag, value)

    aliases = {alias: str(number) for alias, number in client.get_registered_model(name).aliases.items()}
    for alias in ALIASES:
        holder = state.version(state.holder(alias))
        number_there = str(entries[holder.model].version) if holder else ""
        if number_there and aliases.get(alias) != number_there:
            client.set_registered_model_alias(name, alias, number_there)
        elif not number_there and alias in aliases:
            client.delete_registered_model_alias(name, alias)


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
        yield partial(_show_in_registry, self.place.store, self.api)


def registry_of(store: ArtifactStore) -> InModelRegistry | None:
    """The Model Registry that `GATEHOUSE_MODEL_REGISTRY` names, or None."""
    api = registry_here()
    if api is None:
        return None
    return InModelRegistry(Place(store, api.address, f"model-registry-{sha256_bytes(api.address.encode())[:16]}"), api)


def _show_in_registry(store: ArtifactStore, api: RegistryApi, ledger: Ledger, state: State, shown: int) -> None:
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


Projection = InMlflow | InModelRegistry


def projections(store: ArtifactStore) -> Iterator[Projection]:
    """All places that show the ledgers of this store."""
    if tracking := tracking_of(store):
        yield InMlflow(tracking)
    if registry := registry_of(store):
        yield registry


def project(store: ArtifactStore, model_name: str, state: State, label: str = "register:projection") -> bool:
    """Update every place to the ledger's state, if the ledger changed since the last update.

    An error becomes a warning in the run record, under `label`: the decision is made, and the next run tries again. If
    the run is shown later, this only notes that the ledger is to be shown. Returns whether nothing failed.
    """
    succeeded = True
    for projection in projections(store):
        if not state.size or projection.place.is_shown(_marker(model_name, state.size)):
            continue
        if is_shown_later():
            leave_ledger(store, model_name)
            break
        with warning_on_failure(store, label, projection.title) as showing:
            write(projection, Ledger(store, model_name))
        succeeded = succeeded and not showing.failed
    return succeeded


def write(projection: Projection, ledger: Ledger, anew: bool = False) -> None:
    """Update one place to the ledger's state: only what is new, or everything with `anew`."""
    place, name = projection.place, ledger.model_name
    with projection.writing() as show:
        state = ledger.state()
        sizes = (size for size in range(state.size, 0, -1) if place.is_shown(_marker(name, size)))
        shown = 0 if anew else next(sizes, 0)
        while shown < state.size:
            show(ledger, state, shown)
            place.mark_shown(_marker(name, state.size))
            # If another process wrote a newer state in the meantime, this write may have replaced it: check again.
            shown, state = state.size, ledger.state()


def _marker(model_name: str, size: int) -> str:
    return f"registry/{model_name}/{size:06d}"


def show_run(store: ArtifactStore, run: str) -> bool:
    """Show models, experiments, ledgers and stages of a run, each once; returns whether nothing of the run is left."""
    left = left_by(store, run)
    shown = [track_training(store, model) for model in left.models]
    shown += [track_experiment(store, experiment) for experiment in left.experiments]
    send_rest(store)  # Also what a training logged that failed.
    for name in left.ledgers:
        with warning_on_failure(store, "run:projection", f"The ledger of {name}") as showing:
            shown.append(project(store, name, Ledger(store, name).state(), "run:projection"))
        shown.append(not showing.failed)
    shown.append(track_run(store, run))
    if was_stopped(store, run):
        shown.append(end_shown(store, run, killed=True))
    return all(shown)


def main(address: str, *runs: str) -> None:
    """Show runs that are left, each with the prices that its project had; one that cannot be shown blocks no other.

    A run may end while the one before it is being shown. Two processes at once would show that one twice, so the second
    waits.
    """
    store = ArtifactStore.open(address)
    os.environ.pop(LATER, None)
    prices = os.environ.get(PRICES, "")
    with open(store.local_folder / "showing.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        left = runs_left(store)
        for run in runs:
            if run not in left:
                continue
            os.environ[RUN_ID], done = run, False
            with warning_on_failure(store, "run:tracking"):
                plan = read_record(store.objects, f"runs/{run}/plan.json") or {}
                os.environ[PRICES] = prices or json.dumps(plan.get("prices", {}))
                done = show_run(store, run)
            if done:
                all_is_shown(store, run)


if __name__ == "__main__":
    # Nobody may wait for this process: if the folder of a store is gone by now, opening it would make it again.
    if "://" in sys.argv[1] or Path(sys.argv[1]).is_dir():
        main(*sys.argv[1:])
