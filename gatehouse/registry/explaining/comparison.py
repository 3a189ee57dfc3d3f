"""Compares two registered versions: all numbers, and changes in data, features, configuration and code."""

from collections.abc import Iterator
from typing import Any

from gatehouse.errors import MissingArtifactError
from gatehouse.registry.explaining.answers import provenance_of, settings_of, training_of
from gatehouse.registry.explaining.numbers import Number, numbers_of
from gatehouse.registry.naming import named
from gatehouse.registry.state import ModelVersion
from gatehouse.store.records import changes, read_record
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

_FEATURES = ("features", "feature-tables", "training-sets", "config")


class CompareRequest(StageModel):
    """Two versions, each as NAME:2 or NAME@champion."""

    first: str
    second: str


class Pair(StageModel):
    """One number of both versions; None for a version that lacks it."""

    name: str
    first: Number | None
    second: Number | None


class Change(StageModel):
    """A difference in `data`, `features`, `configuration`, `code` or `environment`; empty for a side that lacks it."""

    part: str
    name: str
    first: str
    second: str


class Compared(StageModel):
    """The comparison of two versions; `same_test` says whether their numbers are from the same test rows."""

    first: str
    second: str
    same_test: bool
    numbers: tuple[Pair, ...]
    changes: tuple[Change, ...]


def compare(request: CompareRequest, store: ArtifactStore) -> Compared:
    """Compare two versions.

    Raises:
        ConfigurationError: if there is no such model or version.
    """
    names = [named(store, each) for each in (request.first, request.second)]
    first, second = (each.version for each in names)
    return Compared(
        first=f"{names[0].ledger.model_name}:{first.version}",
        second=f"{names[1].ledger.model_name}:{second.version}",
        same_test=_same_test(store, first.evaluation, second.evaluation),
        numbers=_pairs(store, first, second),
        changes=tuple(_changes(store, first, second)),
    )


def _same_test(store: ArtifactStore, *evaluations: str) -> bool:
    """Whether both evaluations used the same test rows; false if one of them no longer exists."""
    try:
        ours, theirs = (store.manifest(each).derived_from for each in evaluations)
    except MissingArtifactError:
        return False
    return all(ours.get(role) == theirs.get(role) for role in ("training_set", "split"))


def _pairs(store: ArtifactStore, first: ModelVersion, second: ModelVersion) -> tuple[Pair, ...]:
    ours, theirs = ({each.name: each for each in numbers_of(store, side.evaluation)} for side in (first, second))
    names = dict.fromkeys([*ours, *theirs])
    return tuple(Pair(name=name, first=ours.get(name), second=theirs.get(name)) for name in names)


def _changes(store: ArtifactStore, first: ModelVersion, second: ModelVersion) -> Iterator[Change]:
    models = (first.model, second.model)
    sides = [_artifacts(each.lineage) for each in (first, second)]
    for name, a, b in changes(*sides):
        yield _change("features" if name.split("/")[0] in _FEATURES else "data", name, a, b)
    columns = [_columns(store, each) for each in (first, second)]
    yield from (_change("features", f"column {name}", a, b) for name, a, b in changes(*columns))
    yield from (_change("configuration", *each) for each in changes(*(settings_of(store, each) for each in models)))
    yield from (_change("code", *each) for each in _code(store, *models))
    machines = (training_of(store, each).get("environment") or {} for each in models)
    yield from (_change("environment", *each) for each in changes(*machines))


def _code(store: ArtifactStore, first: str, second: str) -> Iterator[tuple[str, Any, Any]]:
    """Differences in the code that trained them."""
    digests = [str(provenance_of(store, each).get("code", "")) for each in (first, second)]
    yield from code_changes(store, digests[0], digests[1])


def code_changes(store: ArtifactStore, first: str, second: str) -> Iterator[tuple[str, Any, Any]]:
    """Differences between two code digests: modules and distributions if both are recorded, else the digests."""
    if first == second:
        return
    digests = (first, second)
    known = [read_record(store.objects, f"code/{digest}.json") if digest else None for digest in digests]
    if known[0] and known[1]:
        yield from changes(known[0], known[1])
    else:
        yield "digest", digests[0], digests[1]


def _artifacts(lineage: tuple[str, ...]) -> dict[str, str]:
    """Identities by kind and name; several with the same kind and name are joined."""
    found: dict[str, str] = {}
    for identity in lineage:
        reference = Reference.parse(identity)
        name = f"{reference.kind}/{reference.name}"
        found[name] = f"{found[name]} {identity}" if name in found else identity
    return found


def _columns(store: ArtifactStore, version: ModelVersion) -> dict[str, str]:
    training_set = next((each for each in version.lineage if each.startswith("training-sets/")), "")
    return {each.name: each.type for each in store.manifest(training_set).columns} if training_set else {}


def _change(part: str, name: str, first: Any, second: Any) -> Change:
    texts = ("" if value is None else str(value) for value in (first, second))
    return Change(part=part, name=name, first=next(texts), second=next(texts))
