"""The feature repository as data: entities, views with their SQL, staging queries in order. Reads YAML and SQL only."""

import re
from dataclasses import dataclass
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import ConfigurationError

Kind = Literal["numeric", "categorical"]
_Model = TypeVar("_Model", bound=BaseModel)
EVENT_TIMESTAMP = "event_timestamp"
_DURATION = re.compile(r"(\d+)\s*(m|h|d)\Z")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_STAGED = re.compile(r"\bstaging\.(\w+)")


class RepositoryFile(BaseModel):
    """The content of `repository.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: str
    entities: dict[str, Literal["string", "int64"]]
    history_days: int = Field(gt=0, description="Days before a cut from which the replay recomputes.")


class ViewFile(BaseModel):
    """The content of `views/<view>.yaml`; the query of the same name computes exactly these columns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entities: tuple[str, ...]
    ttl: timedelta | None = None
    created_timestamp: str = Field(
        "", description="Column that says since when a row is known, if later than its event."
    )
    features: dict[str, Kind] = Field(min_length=1)

    @field_validator("ttl", mode="before")
    @classmethod
    def _duration(cls, value: Any) -> Any:
        match = _DURATION.match(value) if isinstance(value, str) else None
        if value is not None and match is None:
            raise ValueError("expected a duration such as 30m, 12h or 14d")
        return timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else None


@dataclass(frozen=True)
class View:
    """A feature view: what its rows are about, how long they stay fresh, its features, and the query behind them."""

    name: str
    spec: ViewFile
    query: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its table, in order."""
        created = (self.spec.created_timestamp,) if self.spec.created_timestamp else ()
        return (*self.spec.entities, EVENT_TIMESTAMP, *created, *self.spec.features)


@dataclass(frozen=True)
class Repository:
    """A feature repository.

    Attributes:
        folder: Where its files are.
        spec: The content of `repository.yaml`.
        macros: SQL run before everything else.
        staging: Query by name, each after those that it reads.
        views: View by name.
        known: Query by raw table that gives the table as it stood at `as_of`; tables without one have no history.
        entity_rows: The query of the entity rows.
    """

    folder: Path
    spec: RepositoryFile
    macros: str
    staging: dict[str, str]
    views: dict[str, View]
    known: dict[str, str]
    entity_rows: str

    @property
    def entity_keys(self) -> tuple[str, ...]:
        """The join keys of all entities, in the order of `repository.yaml`."""
        return tuple(self.spec.entities)


def check_out(store: ArtifactStore, definitions: str, folder: Path) -> Repository:
    """Copy the published definitions into `folder` and read them.

    Raises:
        ConfigurationError: as `read_repository`.
    """
    for entry in store.manifest(definitions).files:
        target = folder / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(store.read_bytes(definitions, entry.path))
    return read_repository(folder)


def read_repository(folder: Path) -> Repository:
    """Read the feature repository in `folder`.

    Raises:
        ConfigurationError: listing every problem found: a missing or invalid file, an entity that nobody defined, a
            feature that two views give, a circle among the staging queries.
    """
    problems: list[str] = []
    spec = _load(folder / "repository.yaml", RepositoryFile, problems)
    views: dict[str, View] = {}
    for path in sorted((folder / "views").glob("*.yaml")):
        view = _load(path, ViewFile, problems)
        query = path.with_suffix(".sql")
        if not query.is_file():
            problems.append(f"views/{path.name}: expected its query in views/{query.name}, found none")
        elif view is not None:
            views[path.stem] = View(path.stem, view, query.read_text())
    rows = folder / "entity_rows.sql"
    if not rows.is_file():
        problems.append("entity_rows.sql: expected the query of the entity rows, found none")
    if spec is not None:
        problems.extend(_clashes(spec, views))
    staging = _in_order(_queries(folder / "staging"), problems)
    if problems or spec is None:
        raise ConfigurationError("The feature repository has problems:" + "".join(f"\n  - {text}" for text in problems))
    macros = folder / "macros.sql"
    return Repository(
        folder=folder,
        spec=spec,
        macros=macros.read_text() if macros.is_file() else "",
        staging=staging,
        views=views,
        known=_queries(folder / "known"),
        entity_rows=rows.read_text(),
    )


def staged_by(repository: Repository, queries: list[str]) -> list[str]:
    """Names of the staging queries that `queries` read, directly or not, each after those that it reads itself."""
    needed: set[str] = set()
    pending = list(queries)
    while pending:
        for name in _STAGED.findall(_code(pending.pop())):
            if name in repository.staging and name not in needed:
                needed.add(name)
                pending.append(repository.staging[name])
    return [name for name in repository.staging if name in needed]


def _clashes(spec: RepositoryFile, views: dict[str, View]) -> list[str]:
    problems: list[str] = []
    owner = dict.fromkeys(spec.entities, "the entities")
    for view in views.values():
        unknown = [name for name in view.spec.entities if name not in spec.entities]
        problems.extend(f"views/{view.name}.yaml: entities: {name!r} is not in repository.yaml" for name in unknown)
        for feature in view.spec.features:
            if feature in owner:
                problems.append(f"views/{view.name}.yaml: features: {feature!r} is also given by {owner[feature]}")
            owner.setdefault(feature, f"the view {view.name}")
    return problems


def _in_order(queries: dict[str, str], problems: list[str]) -> dict[str, str]:
    graph = {name: [read for read in _STAGED.findall(_code(text)) if read != name] for name, text in queries.items()}
    for name, reads in graph.items():
        problems.extend(
            f"staging/{name}.sql: reads staging.{read}, which nobody defines" for read in reads if read not in graph
        )
    try:
        return {name: queries[name] for name in TopologicalSorter(graph).static_order() if name in queries}
    except CycleError as error:
        problems.append(f"staging: the queries read each other in a circle: {' -> '.join(error.args[1])}")
        return {}


def _code(query: str) -> str:
    return re.sub(r"--[^\n]*", "", query)


def _queries(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted(folder.glob("*.sql"))}


def _load(path: Path, model: type[_Model], problems: list[str]) -> _Model | None:
    name = path.name if path.parent.name != "views" else f"views/{path.name}"
    try:
        return model.model_validate(yaml.safe_load(path.read_text()))
    except FileNotFoundError:
        problems.append(f"{name}: expected this file, found none")
    except yaml.YAMLError as error:
        problems.append(f"{name}: is not YAML: {' '.join(str(error).split())}")
    except ValidationError as error:
        for detail in error.errors():
            where = ".".join(str(part) for part in detail["loc"]) or "the file"
            problems.append(f"{name}: {where}: {detail['msg']}, found {detail['input']!r}")
    return None
