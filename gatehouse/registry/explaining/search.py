"""Finds registered versions by their numbers, settings, tags and lineage."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.registry.explaining.answers import leaves, provenance_of, settings_of
from gatehouse.registry.explaining.numbers import Number, numbers_of
from gatehouse.registry.ledger import Ledger, model_names
from gatehouse.registry.state import ModelVersion, State
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.query import lookup, parse

_KINDS = ("params.", "metrics.", "tags.")


class SearchRequest(StageModel):
    """Which versions are wanted.

    Attributes:
        query: Query in the syntax of runs, on `name`, `version`, `stage`, `user`, settings, metrics and tags; empty for
            all.
        trained_on: References that all versions found were made from; a digest may be shortened.
        model_name: Search only this model; empty for all.
    """

    query: str = ""
    trained_on: tuple[str, ...] = ()
    model_name: str = ""


class Found(StageModel):
    """A version that was found."""

    name: str
    version: int
    stage: str
    model: str
    by: str
    tags: dict[str, str]
    numbers: tuple[Number, ...]


@dataclass(frozen=True)
class _Values:
    """The values of a version that a query can use."""

    found: Found
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def attributes(self) -> Mapping[str, Any]:
        named = ("name", "version", "stage", "model")
        return {name: getattr(self.found, name) for name in named} | {"user": self.found.by}

    @property
    def metrics(self) -> Mapping[str, float]:
        return {each.name: each.value for each in self.found.numbers}

    @property
    def tags(self) -> Mapping[str, str]:
        return self.found.tags


def search(request: SearchRequest, store: ArtifactStore) -> tuple[Found, ...]:
    """The versions that match a request, in the order that its query asks for.

    Raises:
        ConfigurationError: if the query is invalid (the message gives the column), or has a name that no version has.
    """
    query = parse(request.query)
    names = [request.model_name] if request.model_name else model_names(store)
    candidates = [each for name in names for each in _versions(store, name, request.trained_on)]
    _require_known(query.names, candidates)
    return tuple(each.found for each in query.select(candidates))


def _require_known(names: tuple[str, ...], candidates: Sequence[_Values]) -> None:
    """Refuse a name that no version has; a name with its kind, such as `tags.reviewed`, may come later."""
    for name in names:
        if not candidates or name.startswith(_KINDS) or any(lookup(each, name) is not None for each in candidates):
            continue
        known = {key for each in candidates for key in (*each.attributes, *each.metrics, *each.params, *each.tags)}
        raise ConfigurationError(
            f"query: expected the name of an attribute, a metric, a setting or a tag, found {name!r}, which none of "
            f"{len(candidates)} versions has{nearest(name, sorted(known))}."
        )


def _versions(store: ArtifactStore, name: str, trained_on: tuple[str, ...]) -> Iterator[_Values]:
    state = Ledger(store, name).state()
    for version in state.versions:
        if all(any(identity.startswith(wanted) for identity in version.lineage) for wanted in trained_on):
            yield _values(store, name, state, version)


def _values(store: ArtifactStore, name: str, state: State, version: ModelVersion) -> _Values:
    found = Found(
        name=name,
        version=version.version,
        stage=state.stage_of(version),
        model=version.model,
        by=str(provenance_of(store, version.model).get("by", "")),
        tags=dict(version.tags),
        numbers=numbers_of(store, version.evaluation),
    )
    return _Values(found, {path: str(value) for path, value in leaves(settings_of(store, version.model))})
