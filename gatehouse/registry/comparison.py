"""Compares two registered versions: all numbers, and changes in data, features, configuration and code."""

from collections.abc import Iterator
from typing import Any

from gatehouse.errors import MissingArtifactError
from gatehouse.registry.answers import provenance_of, settings_of, training_of
from gatehouse.registry.explanation import Number, numbers_of
from gatehouse.registry.naming import named
from gatehouse.store.records import changes, read_record
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import lineage_of

DIFFERENT_ROWS = "These numbers are of different test rows: they do not say which model is better."
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

    @classmethod
    def of(cls, part: str, name: str, first: Any, second: Any) -> "Change":
        """A difference between two values of any type; None for a missing one."""
        texts = ["" if value is None else str(value) for value in (first, second)]
        return cls(part=part, name=name, first=texts[0], second=texts[1])


class VersionComparison(StageModel):
    """The comparison of two versions; `same_test` says whether their numbers are from the same test rows."""

    first: str
    second: str
    same_test: bool
    numbers: tuple[Pair, ...]
    changes: tuple[Change, ...]


def compare(request: CompareRequest, store: ArtifactStore) -> VersionComparison:
    """Compare two versions. Raises ConfigurationError if there is no such model or version."""
    names = [named(store, name) for name in (request.first, request.second)]
    first, second = (name.version for name in names)
    same_test, pairs = compare_numbers(store, first.evaluation, second.evaluation)
    return VersionComparison(
        first=f"{names[0].ledger.model_name}:{first.version}",
        second=f"{names[1].ledger.model_name}:{second.version}",
        same_test=same_test,
        numbers=pairs,
        changes=tuple(changes_between(store, first.model, second.model)),
    )


def compare_numbers(store: ArtifactStore, first: str, second: str) -> tuple[bool, tuple[Pair, ...]]:
    """Whether two evaluations are of the same test rows, and the numbers of both candidates."""
    numbers, other = ({number.name: number for number in numbers_of(store, item)} for item in (first, second))
    try:
        data, other_data = (store.manifest(evaluation).derived_from for evaluation in (first, second))
        same_test = all(data.get(role) == other_data.get(role) for role in ("training_set", "split"))
    except MissingArtifactError:
        same_test = False
    names = dict.fromkeys([*numbers, *other])
    return same_test, tuple(Pair(name=name, first=numbers.get(name), second=other.get(name)) for name in names)


def changes_between(store: ArtifactStore, first: str, second: str) -> Iterator[Change]:
    """What differs in how two models were made."""
    models = (first, second)
    artifacts: list[dict[str, str]] = [{}, {}]
    columns: list[dict[str, str]] = [{}, {}]
    for side, model in enumerate(models):
        for identity in lineage_of(store, model):
            reference = Reference.parse(identity)
            name = f"{reference.kind}/{reference.name}"
            artifacts[side][name] = f"{artifacts[side].get(name, '')} {identity}".strip()
            if reference.kind == "training-sets":
                columns[side] = {column.name: column.type for column in store.manifest(identity).columns}
    for name, *values in changes(*artifacts):
        yield Change.of("features" if name.split("/")[0] in _FEATURES else "data", name, *values)
    for name, *values in changes(*columns):
        yield Change.of("features", f"column {name}", *values)
    for change in changes(*(settings_of(store, model) for model in models)):
        yield Change.of("configuration", *change)
    for change in code_changes(store, *(str(provenance_of(store, model).get("code", "")) for model in models)):
        yield Change.of("code", *change)
    for change in changes(*(training_of(store, model).get("environment") or {} for model in models)):
        yield Change.of("environment", *change)


def code_changes(store: ArtifactStore, first: str, second: str) -> Iterator[tuple[str, Any, Any]]:
    """Differences between two code digests: modules and distributions if both are recorded, else the digests."""
    if first == second:
        return
    parts = [read_record(store.objects, f"code/{digest}.json") if digest else None for digest in (first, second)]
    if parts[0] and parts[1]:
        yield from changes(parts[0], parts[1])
    else:
        yield "digest", first, second
