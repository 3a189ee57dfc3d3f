"""The ledger in the Kubeflow Model Registry: a registered model, its versions, and the location of each model.

Entries that people add there are kept: only properties that begin with `gatehouse.` or `test_`, aliases, and states are
written. An alias is a label, which in this registry is a property without a value. A version that is archived or rolled
back is archived there too.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from gatehouse.registry.ledger import Ledger
from gatehouse.registry.showing.facts import MODEL, VERDICT, measured, origin, standing
from gatehouse.registry.showing.registry_api import ModelRegistryError, RegistryApi, Resource, registry_here
from gatehouse.registry.state import ALIASES, ModelVersion, State
from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.place import Place

_OURS = ("gatehouse.", "test_")
_FORMAT = "gatehouse"


@dataclass(frozen=True)
class Registry(Place):
    """A Model Registry that shows the ledgers of a store.

    Attributes:
        api: The API client.
    """

    api: RegistryApi


def registry_of(store: ArtifactStore) -> Registry | None:
    """The Model Registry that `GATEHOUSE_MODEL_REGISTRY` names, or None."""
    api = registry_here()
    if api is None:
        return None
    return Registry(store, api.address, f"model-registry-{sha256_bytes(api.address.encode())[:16]}", api)


@dataclass(frozen=True)
class InModelRegistry:
    """The Model Registry as a place that shows ledgers.

    Attributes:
        place: Where it is.
    """

    place: Registry
    title = "The Model Registry"

    @contextmanager
    def writing(self) -> Iterator[Callable[[Ledger, State, int], None]]:
        """A connection to the registry."""
        yield partial(_show, self.place)


def _show(registry: Registry, ledger: Ledger, state: State, told: int) -> None:
    """Create what is missing by name, then set what changed.

    The stage of a version is set last, so a version that has it also has its artifact. If `told` is 0, the artifacts of
    all versions are checked.
    """
    if not state.versions:
        return
    api, name = registry.api, ledger.model_name
    about = {"owner": api.author, "customProperties": _properties({"gatehouse.store": registry.store.address})}
    model = _ensure(api, "registered_models", "registered_models", name, about)
    records = ledger.records()
    path = f"registered_models/{model['id']}/versions"
    shown = {each["name"]: each for each in api.every(path)}
    for version in state.versions:
        number, run = str(version.version), str(records[version.registered_at - 1].provenance.get("run", ""))
        begun = {
            "author": api.author,
            "registeredModelId": model["id"],
            "customProperties": _properties(origin(version)),
        }
        known = shown.get(number) or _ensure(api, path, "model_versions", number, begun)
        _require_same(registry, name, known, version)
        change = _change(known, _wanted(registry.store, state, version, run))
        if change or not told:
            _show_artifact(registry, name, version, known["id"], run)
        if change:
            api.update(f"model_versions/{known['id']}", change)


def _ensure(api: RegistryApi, listed: str, created: str, name: str, body: Resource) -> Resource:
    """The resource with this name from a list; it is created if it is missing.

    Names are compared here: the registry's own search by name takes `_` and `%` for wildcards.
    """
    for attempt in range(2):
        if found := next((each for each in api.every(listed) if each.get("name") == name), None):
            return found
        if attempt == 0 and (made := api.create(created, {"name": name} | body)):
            return made
    raise ModelRegistryError(
        f"The Model Registry at {api.address} says that {name} exists already, but does not list it under {listed}. "
        "Give this account the right to read what others registered; or find an entry whose name differs only in upper "
        "and lower case."
    )


def _wanted(store: ArtifactStore, state: State, version: ModelVersion, run: str) -> Resource:
    last = state.last_verdict(version.model)
    told = last[1].told if last else ""
    held = state.aliases_of(version.version)
    text = origin(version) | standing(state, version) | {VERDICT: told, "gatehouse.run": run}
    text |= {"gatehouse.digest": Reference.parse(version.model).digest}
    noted = {name if name.startswith(_OURS) else f"gatehouse.tag.{name}": value for name, value in text.items()}
    properties = _properties({name: value for name, value in noted.items() if value})
    properties |= _properties(dict.fromkeys(held, "")) | _numbers(measured(store, version.evaluation))
    status = version.ended or " ".join(held) or state.stage_of(version)
    return {
        "description": f"{status}; the gate said {told}",
        "state": "ARCHIVED" if version.ended else "LIVE",
        "customProperties": properties,
    }


def _properties(values: Mapping[str, str]) -> Resource:
    return {name: {"metadataType": "MetadataStringValue", "string_value": text} for name, text in values.items()}


def _numbers(values: Mapping[str, float]) -> Resource:
    return {name: {"metadataType": "MetadataDoubleValue", "double_value": number} for name, number in values.items()}


def _require_same(registry: Registry, name: str, known: Resource, version: ModelVersion) -> None:
    held = known.get("customProperties", {}).get(MODEL, {}).get("string_value", "")
    if held != version.model:
        raise ModelRegistryError(
            f"Version {version.version} of {name} in the Model Registry at {registry.uri} is {held or 'not ours'}, "
            f"expected {version.model}: another store, or a person, registers under this name there. Rename the model "
            "in project.yaml, or remove the version there."
        )


def _change(known: Resource, wanted: Resource) -> Resource:
    """The fields in which a resource differs from what is wanted; what people added to it is kept."""
    held: dict[str, Any] = known.get("customProperties") or {}
    theirs = {name: value for name, value in held.items() if not name.startswith(_OURS) and name not in ALIASES}
    merged = wanted | {"customProperties": theirs | wanted["customProperties"]}
    return {field: value for field, value in merged.items() if known.get(field) != value}


def _show_artifact(registry: Registry, name: str, version: ModelVersion, version_id: str, run: str) -> None:
    """Set the location of a version's model, and the pipeline run that registered it."""
    reference = Reference.parse(version.model)
    wanted = {
        "uri": registry.store.address_of(reference),
        "modelFormatName": _FORMAT,
        "modelFormatVersion": "1",
        "state": "LIVE",
        "customProperties": _properties({MODEL: version.model, "gatehouse.digest": reference.digest}),
    }
    if run:
        wanted |= {"modelSourceKind": "pipelines", "modelSourceClass": "pipelinerun", "modelSourceId": run}
    path = f"model_versions/{version_id}/artifacts"
    found = _ensure(registry.api, path, path, name, {"artifactType": "model-artifact"} | wanted)
    if change := _change(found, wanted):
        registry.api.update(f"model_artifacts/{found['id']}", {"artifactType": "model-artifact"} | change)
