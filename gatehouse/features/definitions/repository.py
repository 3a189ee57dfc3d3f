"""The feature repository as data: its definitions with their SQL, and every problem of them. Reads only Python and SQL.

Definitions are loaded from `definitions.py`, or from their published form.
"""

import importlib.util
import json
import re
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from gatehouse.configuration.yaml_lines import nearest, read_text
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.declarations import (
    EVENT_TIMESTAMP,
    KNOWN_FROM,
    Entity,
    FeatureService,
    FeatureView,
    Kind,
    LabelView,
    OnDemandView,
    Source,
)
from gatehouse.features.definitions.sql_text import (
    KNOWN_PARAMETERS,
    PARAMETERS,
    macro_problems,
    names_read,
    parameter_problems,
)
from gatehouse.metrics.tasks import TASKS
from gatehouse.store.store import ArtifactStore

FILE = "definitions.py"
PUBLISHED = "definitions.json"
_MODULE = "gatehouse_feature_definitions"
_OF_REPOSITORY = re.compile(
    r"^(?:The feature repository's )?(definitions\.py|feature_store\.yaml|macros\.sql|\w+/[^ :]+\.sql)"
)
"""The beginning of each problem message of a feature repository."""
KINDS: dict[str, type[Any]] = {
    "entities": Entity,
    "views": FeatureView,
    "on_demand": OnDemandView,
    "services": FeatureService,
    "labels": LabelView,
    "sources": Source,
}
"""The kinds of definitions, by field of `Definitions`."""


@dataclass(frozen=True)
class Definitions:
    """The definitions of `definitions.py`."""

    entities: dict[str, Entity]
    views: dict[str, FeatureView]
    on_demand: dict[str, OnDemandView]
    services: dict[str, FeatureService]
    labels: list[LabelView]
    sources: dict[str, Source]


def load_definitions(folder: Path, problems: list[str]) -> Definitions:
    """Run `definitions.py` in `folder`; names that are defined twice are added to `problems`.

    Raises ConfigurationError if there is no such file, or it does not run; the first wrong definition ends it.
    """
    path = folder / FILE
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigurationError(f"{FILE}: expected the feature definitions in the repository, found none.")
    module = importlib.util.module_from_spec(spec)
    written = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        file = Path(error.filename or FILE).name  # It may be one that the definitions import.
        raise ConfigurationError(f"{file}:{error.lineno}: {error.msg}, found {(error.text or '').strip()!r}") from error
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        place = f"{FILE}:{lines[-1]}" if lines else FILE
        ran = "" if isinstance(error, ConfigurationError) else f" does not run: {type(error).__name__}"
        raise ConfigurationError(f"{place}{ran}: {error}") from error
    finally:
        sys.dont_write_bytecode = written
    defined = list(vars(module).values())
    by_name: dict[str, dict[str, Any]] = {}
    for field, kind in KINDS.items():
        by_name[field] = {}
        for definition in defined:
            if isinstance(definition, kind):
                name = name_of(definition)
                if by_name[field].setdefault(name, definition) is not definition:
                    problems.append(f"{FILE}: two {kind.__name__}s are called {name!r}")
    labels = [*by_name.pop("labels").values()]
    if len(labels) != 1:
        problems.append(f"{FILE}: expected one LabelView, found {len(labels)}")
    return Definitions(**by_name, labels=labels)


def parse_definitions(text: str) -> Definitions:
    """Parse a published `definitions.json`. Raises ConfigurationError if another version of the code wrote it."""
    body = json.loads(text)
    by_name: dict[str, dict[str, Any]] = {}
    try:
        for field, model in KINDS.items():
            by_name[field] = {}
            for fields in body[field]:
                definition = model(**fields)
                by_name[field][name_of(definition)] = definition
    except (KeyError, ValueError, ConfigurationError) as error:
        raise ConfigurationError(
            f"{PUBLISHED}: expected definitions as this version publishes them, found {error}. Run the pipeline again."
        ) from error
    labels = [*by_name.pop("labels").values()]
    return Definitions(**by_name, labels=labels)


def name_of(definition: Any) -> str:
    """The name of a definition; for a source the name of its table."""
    return str(getattr(definition, "name", "") or definition.table)


def in_repository(repo: str, message: str) -> list[str]:
    """The problems of a feature repository as a list, each file name with the repository's folder in front."""
    listed = message.removeprefix("The feature repository has problems:\n  - ").split("\n  - ")
    return [_OF_REPOSITORY.sub(rf"{repo.rstrip('/')}/\g<1>", problem) for problem in listed]


def problems_of(defined: Definitions) -> list[str]:
    """All problems of what `definitions.py` defines, each with what was expected."""
    problems = [*_unknown_names(defined), *_repeated_names(defined)]
    problems += [problem for view in defined.views.values() for problem in view_problems(view)]
    problems += [problem for label in defined.labels for problem in _label_problems(label)]
    for name, on_demand in defined.on_demand.items():
        for service in defined.services.values():
            if name in service.on_demand:
                unread = [view for view in on_demand.views if view not in service.views]
                problems += [f"{service.name}: on_demand: {name} reads {view}: add it to views" for view in unread]
    return [f"{FILE}: {problem}" for problem in problems]


def source_problems(sources: Mapping[str, Source], tables: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Sources of `definitions.py` that the project's source does not have.

    `tables` has the type of every column that the source declares, by table.
    """
    for name, source in sources.items():
        if name not in tables:
            expected = f"({', '.join(tables)}){nearest(name, tables)}"
            yield f"{FILE}: Source {name}: table: expected a table of the source {expected}"
        elif (kind := tables[name].get(source.event_time)) != "timestamp":
            times = [column for column, declared in tables[name].items() if declared == "timestamp"]
            actual = f"{source.event_time}, which is {kind}" if kind else source.event_time
            suggestion = nearest(source.event_time, times)
            yield f"{FILE}: Source {name}: event_time: expected one of {', '.join(times)}, found {actual}{suggestion}"


def _unknown_names(defined: Definitions) -> Iterator[str]:
    named: list[tuple[str, str, Iterable[str], Collection[str]]] = []
    with_keys: list[FeatureView | LabelView] = [*defined.views.values(), *defined.labels]
    named += [(f"{keyed.name}: entities", "Entity", keyed.entities, defined.entities) for keyed in with_keys]
    services = defined.services.values()
    readers: list[FeatureService | OnDemandView] = [*services, *defined.on_demand.values()]
    named += [(f"{reader.name}: views", "FeatureView", reader.views, defined.views) for reader in readers]
    named += [(f"{item.name}: on_demand", "OnDemandView", item.on_demand, defined.on_demand) for item in services]
    for where, kind, names, defined_names in named:
        unknown = [name for name in names if name not in defined_names]
        yield from (f"{where}: no {kind} {name!r}{nearest(name, defined_names)}" for name in unknown)


def _repeated_names(defined: Definitions) -> Iterator[str]:
    """Columns that a training set would have twice, or that have a name that our own queries use."""
    owner = dict.fromkeys(("decision_time", "label", "label_time"), "the label")
    for label in defined.labels:
        names = filter(None, (label.label, label.arrives.column, label.set_aside, *label.keeps))
        owner |= {name.lower(): f"the label {label.name}" for name in names}
        yield from _internal(label.name, label.keeps)
    owner |= dict.fromkeys((*defined.entities, EVENT_TIMESTAMP, KNOWN_FROM), "the entities and times")
    columns = [(view.name, "features: ", [*view.features]) for view in defined.views.values()]
    columns += [(view.name, "", [*view.request, *view.features]) for view in defined.on_demand.values()]
    requested = {view.name: {*view.request} for view in defined.on_demand.values()}
    for name, key, features in columns:
        yield from _internal(name, features)
        for feature in features:
            previous = owner.get(feature.lower(), "its request" if features.count(feature) > 1 else "")
            if previous:
                yield f"{name}: {key}{feature!r} is also given by {previous}: expected another name"
            # Several on-demand views may read one value of the request.
            if feature not in requested.get(name, ()):
                owner.setdefault(feature.lower(), f"the view {name}")


def _internal(view: str, names: Iterable[str]) -> Iterator[str]:
    """Names that begin with two underscores are reserved for our own queries."""
    reserved = (name for name in names if name.startswith("__"))
    yield from (f"{view}: {name!r}: expected a name that does not begin with two underscores" for name in reserved)


def view_problems(view: FeatureView) -> Iterator[str]:
    """Problems of one view on its own."""
    declared = {
        "static": view.static,
        "event_time_only": view.event_time_only,
        "available": view.available is not None,
    }
    chosen = [name for name, is_declared in declared.items() if is_declared]
    if len(chosen) > 1:
        yield f"{view.name}: expected one of available, static and event_time_only, found {' and '.join(chosen)}"
    elif not chosen:
        yield (
            f'{view.name}: states no availability: expected available=Available("<column>", lag=timedelta(...)) with '
            "the query's column that says since when a row is known, static=True if it was always known, or "
            "event_time_only=True if nobody knows"
        )
    elif view.static and view.freshness:
        yield f"{view.name}: expected no freshness for a static view, whose rows have no age"


def _label_problems(label: LabelView) -> Iterator[str]:
    task = TASKS[label.task]
    present = {*label.entities, label.label, "decision_time", "label", "label_time"}
    if again := sorted(name for name in {*label.keeps} if name in present or label.keeps.count(name) > 1):
        yield f"{label.name}: keeps: {', '.join(again)}: in the training set already; leave it out"
    if label.classes and task.output != "probabilities":
        yield f"{label.name}: classes: expected none for the task {label.task}, found {len(label.classes)}"
    if len(set(label.classes)) < len(label.classes) or len(label.classes) == 1:
        yield f"{label.name}: classes: expected two different names at least, found {label.classes}"
    if task.counted == "group" and label.group not in label.entities:
        yield (
            f"{label.name}: group: expected the entity whose rows are ranked together ({', '.join(label.entities)}), "
            f"found {label.group!r}"
        )
    if label.lead and label.window is None:
        yield f"{label.name}: lead: expected a window beside it, found none"
    if task.counted == "row" and label.group:
        yield f"{label.name}: group: expected none for the task {label.task}, found {label.group!r}"


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
    def of_label(self) -> "Repository":
        """The same for the label's query: a decision may depend on source rows of the label's own lead."""
        sources = {name: source.model_copy(update={"lead": self.label.lead}) for name, source in self.sources.items()}
        return replace(self, sources=sources)

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
