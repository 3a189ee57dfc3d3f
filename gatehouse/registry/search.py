"""Finds registered versions by their numbers, settings, tags and lineage."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.registry.answers import leaves, provenance_of, settings_of
from gatehouse.registry.explanation import Number, numbers_of
from gatehouse.registry.ledger import Ledger, model_names
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.query import lookup, parse

_KINDS = ("params.", "metrics.", "tags.")


class SearchRequest(StageModel):
    """A query for versions in the syntax of runs, on `name`, `version`, `stage`, `user`, settings, metrics and tags.

    An empty query finds all. `trained_on` holds references that all versions found were made from; a digest may be
    shortened. `model_name` restricts the search to one model; empty for all.
    """

    query: str = ""
    trained_on: tuple[str, ...] = ()
    model_name: str = ""


class VersionSummary(StageModel):
    """A registered version, as a search result shows it."""

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

    version: VersionSummary
    attributes: Mapping[str, Any]
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]


def search(request: SearchRequest, store: ArtifactStore) -> tuple[VersionSummary, ...]:
    """The versions that match a request, in its order. Raises ConfigurationError if the query is invalid."""
    query = parse(request.query)
    candidates = []
    for model_name in [request.model_name] if request.model_name else model_names(store):
        state = Ledger(store, model_name).state()
        for version in state.versions:
            if not all(any(made.startswith(start) for made in version.lineage) for start in request.trained_on):
                continue
            summary = VersionSummary(
                name=model_name,
                version=version.version,
                stage=state.stage_of(version),
                model=version.model,
                by=str(provenance_of(store, version.model).get("by", "")),
                tags=dict(version.tags),
                numbers=numbers_of(store, version.evaluation),
            )
            attributes = {name: getattr(summary, name) for name in ("name", "version", "stage", "model")}
            params = {path: str(value) for path, value in leaves(settings_of(store, version.model))}
            metrics = {number.name: number.value for number in summary.numbers}
            candidates.append(_Values(summary, attributes | {"user": summary.by}, params, metrics, summary.tags))
    for name in query.names:
        if not candidates or name.startswith(_KINDS) or any(lookup(values, name) is not None for values in candidates):
            continue
        names = {
            key for values in candidates for key in (*values.attributes, *values.metrics, *values.params, *values.tags)
        }
        raise ConfigurationError(
            f"query: {name!r} is no attribute, metric, setting or tag of a version{nearest(name, sorted(names))}."
        )
    return tuple(values.version for values in query.select(candidates))
