"""The feature repository as data: definitions with their SQL, staging queries in order. Reads only Python and SQL."""

from dataclasses import dataclass
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from gatehouse.configuration.yaml_lines import read_text
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.declarations import (
    EVENT_TIMESTAMP,
    KNOWN_FROM,
    FeatureService,
    FeatureView,
    Kind,
    LabelView,
    OnDemandView,
    Source,
)
from gatehouse.features.definitions.loading import (
    FILE,
    PUBLISHED,
    Definitions,
    load_definitions,
    parse_definitions,
)
from gatehouse.features.definitions.problems import problems_of
from gatehouse.features.definitions.sql_text import (
    KNOWN_PARAMETERS,
    PARAMETERS,
    macro_problems,
    names_read,
    parameter_problems,
)
from gatehouse.store.store import ArtifactStore


@dataclass(frozen=True)
class View:
    """A feature view with its query; `kinds` are the types of its join keys, in their order, where known."""

    name: str
    spec: FeatureView
    query: str
    kinds: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its table, in order."""
        return (*self.spec.entities, EVENT_TIMESTAMP, KNOWN_FROM, *self.spec.features)


@dataclass(frozen=True)
class OnDemand:
    """An on-demand view: the query behind it, and the kind of every column that the query may read."""

    name: str
    spec: OnDemandView
    query: str
    inputs: dict[str, Kind]


@dataclass(frozen=True)
class Repository:
    """A feature repository.

    Attributes:
        entities: Type of the join key by entity.
        staging: Staging query by name; each query comes after those that it reads.
        histories: Query by raw table that gives the table as it stood at `as_of`; tables without one have no history.
    """

    folder: Path
    entities: dict[str, str]
    sources: dict[str, Source]
    macros: str
    staging: dict[str, str]
    views: dict[str, View]
    on_demand: dict[str, OnDemand]
    services: dict[str, FeatureService]
    histories: dict[str, str]
    label: LabelView
    entity_rows: str

    @property
    def entity_keys(self) -> tuple[str, ...]:
        """The join keys of the entity rows, in the order of the label view."""
        return self.label.entities

    def service(self, name: str) -> FeatureService:
        """A feature service by name. Raises ConfigurationError that lists the known services."""
        if name not in self.services:
            services = ", ".join(sorted(self.services)) or "none"
            raise ConfigurationError(f"There is no feature service {name!r}: expected one of {services}.")
        return self.services[name]

    def request_values(self, service: str = "") -> dict[str, Kind]:
        """Kind of every value that a request carries, by name: for one service, or for all on-demand views."""
        names = self.services[service].on_demand if service else tuple(self.on_demand)
        return {value: kind for name in names for value, kind in self.on_demand[name].spec.request.items()}

    @property
    def history(self) -> timedelta | None:
        """How far back before a moment source rows can affect usable features; None for the whole past."""
        spans: list[timedelta] = []
        for view in self.views.values():
            if not view.spec.static:
                if view.spec.window is None or view.spec.ttl is None:
                    return None
                spans.append(view.spec.window + view.spec.ttl)
        return max(spans, default=timedelta(0))


def check_out(store: ArtifactStore, definitions: str, folder: Path) -> Repository:
    """Copy the published definitions into `folder` and read them. Raises ConfigurationError as `read_repository`."""
    for entry in store.manifest(definitions).files:
        target = folder / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(store.read_bytes(definitions, entry.path))
    if not (folder / PUBLISHED).is_file():
        raise ConfigurationError(f"{definitions}: expected published feature definitions, found no {PUBLISHED} in it.")
    return _assembled(folder, parse_definitions((folder / PUBLISHED).read_text()), [])


def read_repository(folder: Path) -> Repository:
    """Read the feature repository in `folder`. Raises ConfigurationError that lists every problem."""
    problems: list[str] = []
    return _assembled(folder, load_definitions(folder, problems), problems)


def _assembled(folder: Path, defined: Definitions, problems: list[str]) -> Repository:
    """Join definitions with their queries; raises as `read_repository`, also for entries already in `problems`."""

    def query(kind: str, name: str) -> str:
        path = folder / kind / f"{name}.sql"
        if path.is_file():
            return read_text(path, f"{kind}/{name}.sql", problems) or ""
        problems.append(f"{FILE}: {name}: expected its query in {kind}/{name}.sql, found none")
        return ""

    def queries(kind: str) -> dict[str, str]:
        return {path.stem: query(kind, path.stem) for path in sorted((folder / kind).glob("*.sql"))}

    views, on_demand = dict[str, View](), dict[str, OnDemand]()
    for name, spec in defined.views.items():
        kinds = tuple(str(defined.entities[key].type) if key in defined.entities else "" for key in spec.entities)
        views[name] = View(name, spec, query("views", name), kinds)
    for name, on_demand_spec in defined.on_demand.items():
        read = [defined.views[view].features for view in on_demand_spec.views if view in defined.views]
        inputs = {column: kind for columns in (*read, on_demand_spec.request) for column, kind in columns.items()}
        on_demand[name] = OnDemand(name, on_demand_spec, query("on_demand", name), inputs)
    rows = {label.name: query("labels", label.name) for label in defined.labels}
    problems += problems_of(defined)
    histories, unordered = queries("known"), queries("staging")
    graph = {
        name: [read for read in names_read("staging", text, unordered) if read != name]
        for name, text in unordered.items()
    }
    for name, reads in graph.items():
        undefined = [read for read in reads if read not in graph]
        problems += [f"staging/{name}.sql: reads staging.{read}, which nobody defines" for read in undefined]
    staging = dict[str, str]()
    try:
        staging = {name: unordered[name] for name in TopologicalSorter(graph).static_order() if name in unordered}
    except CycleError as error:
        problems.append(f"staging: the queries read each other in a circle: {' -> '.join(error.args[1])}")
    path = folder / "macros.sql"
    macros = (read_text(path, path.name, problems) or "") if path.is_file() else ""
    problems += macro_problems(macros)
    texts: dict[str, tuple[str, tuple[str, ...]]]
    texts = {f"staging/{name}.sql": (text, PARAMETERS) for name, text in staging.items()}
    texts |= {f"views/{name}.sql": (view.query, PARAMETERS) for name, view in views.items()}
    texts |= {f"labels/{name}.sql": (text, PARAMETERS) for name, text in rows.items()}
    texts |= {f"on_demand/{name}.sql": (view.query, ()) for name, view in on_demand.items()}
    texts |= {f"known/{name}.sql": (text, KNOWN_PARAMETERS) for name, text in histories.items()}
    texts["macros.sql"] = (macros, PARAMETERS)
    problems += [text for file, (query, names) in texts.items() for text in parameter_problems(file, query, names)]
    if problems:
        raise ConfigurationError("The feature repository has problems:" + "".join(f"\n  - {text}" for text in problems))
    label = defined.labels[0]
    return Repository(
        folder=folder,
        entities={name: str(entity.type) for name, entity in defined.entities.items()},
        sources=defined.sources,
        macros=macros,
        staging=staging,
        views=views,
        on_demand=on_demand,
        services=defined.services,
        histories=histories,
        label=label,
        entity_rows=rows[label.name],
    )


def staged_by(repository: Repository, queries: list[str]) -> list[str]:
    """Names of the staging queries that `queries` read, directly or not; each comes after those that it reads."""
    needed: set[str] = set()
    pending = list(queries)
    while pending:
        for name in names_read("staging", pending.pop(), repository.staging):
            if name in repository.staging and name not in needed:
                needed.add(name)
                pending.append(repository.staging[name])
    return [name for name in repository.staging if name in needed]


def tables_of(repository: Repository, queries: list[str]) -> list[str]:
    """Names of the raw tables that `queries` read, directly or through staging tables, in alphabetical order."""
    texts = [*queries, *(repository.staging[name] for name in staged_by(repository, queries))]
    return sorted({name for text in texts for name in names_read("raw", text, repository.sources)})


def without_history(repository: Repository, view: str) -> list[str]:
    """Raw tables that a view reads and whose history is not defined (no `known/<table>.sql`).

    A replay cannot take rows away from such a table. A static view is declared to read what was always known.
    """
    if repository.views[view].spec.static:
        return []
    return [name for name in tables_of(repository, [repository.views[view].query]) if name not in repository.histories]
