"""The feature repository as data: definitions with their SQL, staging queries in order. Reads Python and SQL only."""

import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.features.definitions.declarations import (
    EVENT_TIMESTAMP as EVENT_TIMESTAMP,
)
from gatehouse.components.features.definitions.declarations import (
    KNOWN_FROM,
    Entity,
    FeatureService,
    FeatureView,
    Kind,
    LabelView,
    OnDemandView,
    Source,
    Stream,
    changed_definition,
    definition_problems,
    needs_version,
    problems_listed,
)
from gatehouse.errors import ConfigurationError

FILE = "definitions.py"
_MODULE = "gatehouse_feature_definitions"
_PARAMETERS = ("as_of", "from", "until")
_KNOWN_PARAMETERS = ("as_of", "since")
_STAGED, _RAW = (
    re.compile(rf'\b{schema}"?\.(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<word>\w+))', re.IGNORECASE)
    for schema in ("staging", "raw")
)
_MACRO = re.compile(
    r"\bCREATE\s+(?:OR\s+REPLACE\s+)?MACRO\s+(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>\w+)\s*\(", re.IGNORECASE
)
_TOKEN = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?\*/|\s+)"
    r"|(?P<text>\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"
    r"|(?P<name>\"(?:[^\"]|\"\")*\")"
    r"|(?P<word>\w+)"
    r"|(?P<operator>(?:(?!--|/\*)[-+*/<>=~!@#%^&|`?:])+)"
    r"|.",
    re.DOTALL,
)
_VARIABLE = re.compile(r"\bgetvariable\s*\(\s*'([^']*)'\s*\)", re.IGNORECASE)
_T = TypeVar("_T")


@dataclass(frozen=True)
class View:
    """A feature view: what its rows are about, how long they stay fresh, its features, and the query behind them.

    `kinds` are the types of its join keys, in their order; empty where nobody said them.
    """

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
        folder: Where its files are.
        entities: Type of the join key by entity.
        sources: Raw tables that grow in time, by name.
        streams: Those whose rows arrive as messages as well, by name.
        macros: SQL run before everything else.
        staging: Query by name, each after those that it reads.
        views: View by name.
        on_demand: On-demand view by name.
        services: Feature service by name.
        known: Query by raw table that gives the table as it stood at `as_of`; tables without one have no history.
        label: The definition of the entity rows.
        entity_rows: Their query.
    """

    folder: Path
    entities: dict[str, str]
    sources: dict[str, Source]
    streams: dict[str, Stream]
    macros: str
    staging: dict[str, str]
    views: dict[str, View]
    on_demand: dict[str, OnDemand]
    services: dict[str, FeatureService]
    known: dict[str, str]
    label: LabelView
    entity_rows: str

    @property
    def entity_keys(self) -> tuple[str, ...]:
        """The join keys of the entity rows, in the order of the label view."""
        return self.label.entities

    def request_values(self, service: str = "") -> dict[str, Kind]:
        """Kind of every value that a request carries, by name: for one service, or for all on-demand views."""
        names = self.services[service].on_demand if service else tuple(self.on_demand)
        return {value: kind for name in names for value, kind in self.on_demand[name].spec.request.items()}

    @property
    def history(self) -> timedelta | None:
        """From how long before a moment on sources matter to what is usable then; None for the whole past."""
        spans: list[timedelta] = []
        for view in self.views.values():
            if not view.spec.static:
                if view.spec.window is None or view.spec.ttl is None:
                    return None
                spans.append(view.spec.window + view.spec.ttl)
        return max(spans, default=timedelta(0))


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


def read_repository(folder: Path, previous: Repository | None = None) -> Repository:
    """Read the feature repository in `folder`.

    Args:
        folder: Where it is.
        previous: Earlier definitions; a view that changed its meaning since must have a new version.

    Raises:
        ConfigurationError: listing every problem found: a definition that is wrong or names what nobody defined, a
            view without availability, a missing query, an unknown parameter, a feature that two views give, a circle
            among the staging queries.
    """
    problems: list[str] = []
    with problems_listed(problems):
        module = _load(folder / FILE)
    defined = [value for value in vars(module).values() if not isinstance(value, type)]
    entities = {one.name: str(one.type) for one in _of(Entity, defined)}
    features = _named(_of(FeatureView, defined), problems)
    services = _named(_of(FeatureService, defined), problems)
    asked = _named(_of(OnDemandView, defined), problems)
    labels = _of(LabelView, defined)
    if len(labels) != 1 and not any(": LabelView" in problem for problem in problems):
        problems.append(f"{FILE}: expected one LabelView, found {len(labels)}")
    views = {
        name: View(
            name,
            spec,
            _query(folder, "views", name, problems),
            tuple(entities.get(key, "") for key in spec.entities),
        )
        for name, spec in features.items()
    }
    rows = {label.name: _query(folder, "labels", label.name, problems) for label in labels}
    sources = {one.table: one for one in _of(Source, defined)}
    streams = {one.table: one for one in _of(Stream, defined)}
    problems += [f"{FILE}: Stream {name}: table: no Source {name!r}" for name in streams if name not in sources]
    problems += _clashes(entities, features, services, labels, views if not problems else {})
    problems += _on_demand_clashes(entities, features, asked, services, labels)
    on_demand = {name: _on_demand(folder, spec, features, problems) for name, spec in asked.items()}
    staging = _in_order(_queries(folder / "staging"), problems)
    known = _queries(folder / "known")
    macros = folder / "macros.sql"
    texts = {f"staging/{name}.sql": text for name, text in staging.items()}
    texts |= {f"views/{name}.sql": view.query for name, view in views.items()}
    texts |= {f"labels/{name}.sql": text for name, text in rows.items()}
    texts |= {"macros.sql": macros.read_text()} if macros.is_file() else {}
    problems += [problem for name, text in texts.items() for problem in _parameters(name, text, _PARAMETERS)]
    problems += _macro_problems(texts.get("macros.sql", ""))
    for name, one in on_demand.items():
        problems += _parameters(f"on_demand/{name}.sql", one.query, ())
    for name, text in known.items():
        problems += _parameters(f"known/{name}.sql", text, _KNOWN_PARAMETERS)
    if previous is not None:
        problems += _versions(previous, features, entities)
    if problems:
        raise ConfigurationError("The feature repository has problems:" + "".join(f"\n  - {text}" for text in problems))
    return Repository(
        folder=folder,
        entities=entities,
        sources=sources,
        streams=streams,
        macros=texts.get("macros.sql", ""),
        staging=staging,
        views=views,
        on_demand=on_demand,
        services=services,
        known=known,
        label=labels[0],
        entity_rows=rows[labels[0].name],
    )


def staged_by(repository: Repository, queries: list[str]) -> list[str]:
    """Names of the staging queries that `queries` read, directly or not, each after those that it reads itself."""
    needed: set[str] = set()
    pending = list(queries)
    while pending:
        for name in _names_read(_STAGED, pending.pop(), repository.staging):
            if name in repository.staging and name not in needed:
                needed.add(name)
                pending.append(repository.staging[name])
    return [name for name in repository.staging if name in needed]


def tables_of(repository: Repository, queries: list[str]) -> list[str]:
    """Names of the raw tables that `queries` read, directly or through staging tables, in alphabetical order.

    A table that a source names is spelled as there, others as the queries have them.
    """
    texts = [*queries, *(repository.staging[name] for name in staged_by(repository, queries))]
    return sorted({name for text in texts for name in _names_read(_RAW, text, repository.sources)})


def _names_read(schema: re.Pattern[str], query: str, defined: Iterable[str]) -> list[str]:
    """What a query reads from a schema. SQL knows no case, so names are spelled as they are defined."""
    spelled = {name.lower(): name for name in defined}
    names = [found["word"] or found["quoted"].replace('""', '"') for found in schema.finditer(code(query))]
    return [spelled.get(name.lower(), name) for name in names]


def code_of(repository: Repository, view: View) -> dict[str, str]:
    """SHA-256 of each text that decides a view's rows: its query, the staging queries and macros that it reads.

    Comments and spaces between tokens do not count.
    """
    texts = {f"views/{view.name}.sql": view.query}
    texts |= {f"staging/{name}.sql": repository.staging[name] for name in staged_by(repository, [view.query])}
    macros = _macros(repository.macros)
    pending = list(texts.values())
    while pending:
        words = set(re.findall(r"\w+", code(pending.pop()).lower()))
        for name in words & set(macros):
            if f"macro {name}" not in texts:
                texts[f"macro {name}"] = macros[name]
                pending.append(macros[name])
    return {name: hashlib.sha256(code(text).encode()).hexdigest() for name, text in sorted(texts.items())}


def replacing(macros: str) -> str:
    """The statements of `macros.sql` so that they can run again."""
    bare = _TOKEN.sub(lambda found: " " if found.lastgroup == "comment" else found[0], macros)
    return _MACRO.sub(r"CREATE OR REPLACE MACRO \g<name>(", bare)


@cache
def code(query: str) -> str:
    """SQL without comments, and with one space where two words or two operators would else be one.

    Tokens only, no parser: a table's reference holds the hash of it, which no later version of a library may change.
    """
    written, before = "", None
    for found in _TOKEN.finditer(query):
        kind = "word" if found.lastgroup in ("text", "name") else found.lastgroup
        if kind != "comment":
            written += " " * (kind is not None and kind == before) + found[0]
            before = kind
    return written


def definition_of(repository: Repository, view: View) -> dict[str, object]:
    """All of a view's definition that decides its table: its code, keys, features, availability, window, version."""
    spec = json.loads(view.spec.model_dump_json(exclude={"ttl", "freshness", "description", "event_time_only"}))
    tables = tables_of(repository, [view.query])
    read = {
        name: json.loads(repository.sources[name].model_dump_json()) for name in tables if name in repository.sources
    }
    keys = {name: repository.entities[name] for name in view.spec.entities}
    return {"code": code_of(repository, view), "view": spec, "keys": keys, "sources": read}


def changes(before: Repository, after: Repository) -> dict[str, list[str]]:
    """What changed from one repository to the next, by view; views that did not change are left out."""
    found: dict[str, list[str]] = {}
    for name in sorted({*before.views, *after.views}):
        old, new = before.views.get(name), after.views.get(name)
        if old is None or new is None:
            found[name] = ["removed" if new is None else "new"]
            continue
        lines = changed_definition(old.spec, new.spec) + _retyped(new.spec, before.entities, after.entities)
        codes = code_of(before, old), code_of(after, new)
        lines += [f"code {text}" for text in sorted({*codes[0], *codes[1]}) if codes[0].get(text) != codes[1].get(text)]
        if lines:
            found[name] = lines
    return found


def _of(kind: type[_T], defined: Iterable[object]) -> list[_T]:
    """The definitions of one kind; those whose problems are listed already have no fields."""
    return [one for one in defined if isinstance(one, kind) and vars(one)]


def _named(defined: Iterable[_T], problems: list[str]) -> dict[str, _T]:
    found: dict[str, _T] = {}
    for one in defined:
        name = str(getattr(one, "name"))  # noqa: B009  # views and services share no base with a name
        if name in found and found[name] is not one:
            problems.append(f"{FILE}: two {type(one).__name__}s are called {name!r}")
        found[name] = one
    return found


def _query(folder: Path, kind: str, name: str, problems: list[str]) -> str:
    path = folder / kind / f"{name}.sql"
    if path.is_file():
        return path.read_text()
    problems.append(f"{FILE}: {name}: expected its query in {kind}/{name}.sql, found none")
    return ""


def _clashes(
    entities: Mapping[str, object],
    views: Mapping[str, FeatureView],
    services: Mapping[str, FeatureService],
    labels: list[LabelView],
    read: Mapping[str, View],
) -> list[str]:
    problems = [f"{FILE}: {problem}" for view in views.values() for problem in definition_problems(view)]
    both: list[FeatureView | LabelView] = [*views.values(), *labels]
    for one in both:
        problems += [f"{FILE}: {one.name}: entities: no Entity {key!r}" for key in one.entities if key not in entities]
    for service in services.values():
        problems += [f"{FILE}: {service.name}: views: no FeatureView {v!r}" for v in service.views if v not in views]
    owner = _label_columns(labels) | dict.fromkeys((*entities, EVENT_TIMESTAMP, KNOWN_FROM), "the entities and times")
    for view in views.values():
        problems += _internal(view.name, view.features)
        for feature in view.features:
            if given := owner.get(feature.lower()):
                problems.append(
                    f"{FILE}: {view.name}: features: {feature!r} is also given by {given}: expected another name"
                )
            owner.setdefault(feature.lower(), f"the view {view.name}")
    return problems


def _label_columns(labels: Iterable[LabelView]) -> dict[str, str]:
    """Who gives the columns of a training set that are no features, and those that its rows are chosen by."""
    found = dict.fromkeys(("decision_time", "label", "label_time"), "the label")
    for label in labels:
        names = filter(None, (label.label, label.arrives.column, label.set_aside))
        found |= {name.lower(): f"the label {label.name}" for name in names}
    return found


def _internal(view: str, names: Iterable[str]) -> list[str]:
    """Columns of the queries around the user's begin like this, so that no name of a user can be one of them."""
    own = (name for name in names if name.startswith("__"))
    return [f"{FILE}: {view}: {name!r}: expected a name that does not begin with two underscores" for name in own]


def _on_demand_clashes(
    entities: Mapping[str, object],
    views: Mapping[str, FeatureView],
    asked: Mapping[str, OnDemandView],
    services: Mapping[str, FeatureService],
    labels: Iterable[LabelView],
) -> list[str]:
    problems = []
    taken = {*entities, EVENT_TIMESTAMP, KNOWN_FROM, *_label_columns(labels)}
    taken |= {name.lower() for view in views.values() for name in view.features}
    for one in asked.values():
        problems += [f"{FILE}: {one.name}: views: no FeatureView {view!r}" for view in one.views if view not in views]
        new = [*one.request, *one.features]
        again = sorted(name for name in {*new} if name.lower() in taken or new.count(name) > 1)
        given = "is also given by another view, by the label or as an entity: expected another name"
        problems += [f"{FILE}: {one.name}: {name!r} {given}" for name in again] + _internal(one.name, new)
        taken |= {name.lower() for name in one.features}
    for service in services.values():
        for name in service.on_demand:
            if name not in asked:
                problems.append(f"{FILE}: {service.name}: on_demand: no OnDemandView {name!r}")
                continue
            unread = [view for view in asked[name].views if view not in service.views]
            problems += [f"{FILE}: {service.name}: on_demand: {name} reads {view}: add it to views" for view in unread]
    return problems


def _on_demand(folder: Path, spec: OnDemandView, views: Mapping[str, FeatureView], problems: list[str]) -> OnDemand:
    read = [views[name].features for name in spec.views if name in views]
    inputs = {name: kind for features in (*read, spec.request) for name, kind in features.items()}
    return OnDemand(spec.name, spec, _query(folder, "on_demand", spec.name, problems), inputs)


def _parameters(file: str, query: str, known: tuple[str, ...]) -> list[str]:
    """Problems with a query's parameters: they have names, and these are known."""
    blanks = {"comment": " ", "text": " ", "name": '""'}
    bare = _TOKEN.sub(lambda found: blanks.get(found.lastgroup or "", found[0]), query)
    expected = "expected " + (" or ".join(f"getvariable('{name}')" for name in known) or "none")
    found = dict.fromkeys(re.findall(r"\?|\$\w+", bare))
    problems = [f"{file}: the positional parameter {text}: {expected}" for text in found]
    named = dict.fromkeys(_VARIABLE.findall(code(query)))
    return problems + [f"{file}: the unknown parameter {name!r}: {expected}" for name in named if name not in known]


def _versions(previous: Repository, views: Mapping[str, FeatureView], entities: Mapping[str, str]) -> list[str]:
    problems = []
    for name, view in views.items():
        if name in previous.views:
            old = previous.views[name].spec
            lines = needs_version(old, view)
            lines += _retyped(view, previous.entities, entities) if view.version <= old.version else []
            wanted = f"expected version={old.version + 1} for it, found {view.version}"
            problems += [f"{FILE}: {name}: {line}: {wanted}" for line in lines]
    return problems


def _retyped(view: FeatureView, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    both = [key for key in view.entities if key in before and key in after]
    return [f"entity {key}: {before[key]} became {after[key]}" for key in both if before[key] != after[key]]


def _in_order(queries: dict[str, str], problems: list[str]) -> dict[str, str]:
    graph = {
        name: [read for read in _names_read(_STAGED, text, queries) if read != name] for name, text in queries.items()
    }
    for name, reads in graph.items():
        problems.extend(
            f"staging/{name}.sql: reads staging.{read}, which nobody defines" for read in reads if read not in graph
        )
    try:
        return {name: queries[name] for name in TopologicalSorter(graph).static_order() if name in queries}
    except CycleError as error:
        problems.append(f"staging: the queries read each other in a circle: {' -> '.join(error.args[1])}")
        return {}


def _macros(text: str) -> dict[str, str]:
    """Macros by name; what is no macro belongs to the one before it."""
    text = code(text)
    starts = [*_MACRO.finditer(text)]
    ends = [*(found.start() for found in starts), len(text)][1:]
    return {found["name"].lower(): text[found.start() : end] for found, end in zip(starts, ends, strict=True)}


def _macro_problems(text: str) -> list[str]:
    """Statements whose change no view would notice, since they do not say plainly which macro they create."""
    blanks = {"comment": " ", "text": "''", "name": '""'}
    bare = _TOKEN.sub(lambda found: blanks.get(found.lastgroup or "", found[0]), text)
    statements = [" ".join(statement.split()) for statement in bare.split(";")]
    expected = "expected only CREATE MACRO name(...) AS ..., with no schema and no quotes"
    return [
        f"macros.sql: {expected}, found {statement!r:.80}"
        for statement in statements
        if statement and not _MACRO.match(statement)
    ]


def _queries(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted(folder.glob("*.sql"))}


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigurationError(f"{path.name}: expected the feature definitions in the repository, found none.")
    module = importlib.util.module_from_spec(spec)
    written = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigurationError(f"{path.name} does not run: {type(error).__name__}: {error}") from error
    finally:
        sys.dont_write_bytecode = written
    return module
