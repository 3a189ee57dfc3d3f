"""From which source columns a feature comes: the repository's SQL followed column by column, down to `raw.<table>`.

A column depends on others in two ways: its VALUE is computed from them, or they decide which ROWS count for it (a
filter, a join, a grouping, a window). Who asks whether a feature may know something asks about both. Common table
expressions and subqueries are followed through; what is shown are the queries' own tables: views, staging, raw.

Where SQL cannot be followed exactly, more columns are named rather than fewer.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, build_scope

from gatehouse.components.features.definitions.declarations import EVENT_TIMESTAMP
from gatehouse.components.features.definitions.repository import OnDemand, Repository, View, staged_by
from gatehouse.components.features.definitions.sql_text import code
from gatehouse.errors import ConfigurationError

By = Literal["value", "rows"]
VALUE: By = "value"
ROWS: By = "rows"
RAW = "raw"
REQUEST = "request"
_GIVEN = "given"
_DIALECT = "duckdb"
_ALL = "*"
_PSEUDO = ("rowid", "filename", "file_row_number", "file_index")
_CALLED = re.compile(r"(\w+)\"?\s*\(")
_MACRO = re.compile(r"CREATE\b[\w\s]*?\b(?:MACRO|FUNCTION)\s+(?:IF\s+NOT\s+EXISTS\s+)?\"?(\w+)", re.IGNORECASE)
_Origin = tuple["Column", By]


class Column(NamedTuple):
    """A column of `raw.<table>`, `staging.<table>` or a view; an empty name stands for which rows the table has."""

    table: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.table}.{self.name}" if self.name else f"{self.table} (rows)"

    @property
    def is_source(self) -> bool:
        """Whether it is a column of a raw table, or a value of a request."""
        return (self.table.startswith(f"{RAW}.") or self.table == REQUEST) and bool(self.name)


class Edge(NamedTuple):
    """`after` is computed from `before` (value), or `before` decides which rows count for it (rows)."""

    before: Column
    after: Column
    by: By


@dataclass(frozen=True)
class Lineage:
    """All that features depend on.

    Attributes:
        features: Where the lineage ends.
        edges: Every step, from the features down to the sources.
    """

    features: tuple[Column, ...]
    edges: tuple[Edge, ...]

    def before(self, column: Column) -> list[tuple[Column, By]]:
        """What a column depends on directly, values first."""
        found = [(edge.before, edge.by) for edge in self.edges if edge.after == column]
        return sorted(found, key=lambda pair: (pair[1] != VALUE, pair[0]))

    def sources(self) -> list[tuple[Column, By]]:
        """The columns of raw tables and values of requests, by how they count; one that counts both ways is twice here.

        Those of `value` lead to a feature by values only; those of `rows` decide rows at a step of their way.
        """
        valued, reached = self.value_columns(), self._reached(self.features, (VALUE, ROWS))
        # One step that decides rows is enough, whatever the steps before and after it.
        deciding = {edge.before for edge in self.edges if edge.by == ROWS and edge.after in reached}
        rows = self._reached(deciding, (VALUE, ROWS))
        found = [(column, VALUE) for column in valued] + [(column, ROWS) for column in rows]
        return sorted(
            ((column, by) for column, by in found if column.is_source), key=lambda one: (one[0], one[1] != VALUE)
        )

    def value_columns(self) -> set[Column]:
        """The columns that the features' values are computed from, step by step; the features as well."""
        return self._reached(self.features, (VALUE,))

    def _reached(self, ends: Iterable[Column], kinds: Iterable[By]) -> set[Column]:
        steps: dict[Column, list[Column]] = {}
        for edge in self.edges:
            if edge.by in kinds:
                steps.setdefault(edge.after, []).append(edge.before)
        found, pending = set(ends), list(ends)
        while pending:
            fresh = set(steps.get(pending.pop(), ())) - found
            found |= fresh
            pending += fresh
        return found


def lineage_of(
    repository: Repository, view: View, features: Iterable[str], columns: Mapping[str, Iterable[str]]
) -> Lineage:
    """The lineage of some features of a view.

    Args:
        repository: The definitions.
        view: The view.
        features: Names of its features.
        columns: Columns of every raw table, by its name. One that is not there is followed as far as its name.

    Raises:
        ConfigurationError: naming the file whose SQL cannot be followed.
    """
    macros = _macros(repository.macros)
    schema = {RAW: {table: list(names) for table, names in columns.items()}, "staging": dict[str, list[str]]()}
    edges: dict[Edge, None] = {}
    for name in staged_by(repository, [view.query]):
        read = _Query(f"staging/{name}.sql", repository.staging[name], schema, macros)
        schema["staging"][name] = read.names
        edges |= dict.fromkeys(_edges(read, f"staging.{name}", ()))
    read = _Query(f"views/{view.name}.sql", view.query, schema, macros)
    spec = view.spec
    # Which row of the table a join takes is decided by its keys and times.
    deciding = [*spec.entities, EVENT_TIMESTAMP, *([spec.available.column] if spec.available else [])]
    edges |= dict.fromkeys(_edges(read, view.name, deciding))
    ends = tuple(Column(view.name, feature) for feature in features)
    for end in ends:
        read.origins(end.name)  # One that the query does not give is an error, and not a feature without sources.
    return Lineage(ends, tuple(_leading_to(edges, ends)))


def lineage_on_demand(
    repository: Repository, view: OnDemand, features: Iterable[str], columns: Mapping[str, Iterable[str]]
) -> Lineage:
    """The lineage of some features of an on-demand view, through the views that it reads, and to values of the request.

    Args:
        repository: The definitions.
        view: The on-demand view.
        features: Names of its features.
        columns: As in `lineage_of`.

    Raises:
        ConfigurationError: as `lineage_of`.
    """
    # The query reads one table, `rows`; a row has the features of several views and the values of the request.
    owners = dict.fromkeys(view.spec.request, REQUEST)
    owners |= {name: owner for owner in view.spec.views for name in repository.views[owner].spec.features}
    query = f"WITH rows AS (FROM {_GIVEN}.rows) SELECT * FROM (\n{view.query}\n)"
    schema = {_GIVEN: {"rows": list(view.inputs)}}
    read = _Query(f"on_demand/{view.name}.sql", query, schema, _macros(repository.macros))
    ends = tuple(Column(view.name, feature) for feature in features)
    edges = [
        Edge(Column(owners[before.name], before.name), end, by)
        for end in ends
        for before, by in _direct(read, end.name)
        if before.name in owners
    ]
    for owner in view.spec.views:
        wanted = dict.fromkeys(edge.before.name for edge in edges if edge.before.table == owner)
        edges += lineage_of(repository, repository.views[owner], wanted, columns).edges if wanted else ()
    return Lineage(ends, tuple(dict.fromkeys(edges)))


def _leading_to(edges: Iterable[Edge], ends: Iterable[Column]) -> list[Edge]:
    by_end: dict[Column, list[Edge]] = {}
    for edge in edges:
        by_end.setdefault(edge.after, []).append(edge)
    found: dict[Edge, None] = {}
    seen, pending = set(ends), list(ends)
    while pending:
        for edge in by_end.get(pending.pop(0), ()):
            found[edge] = None
            if edge.before not in seen:
                seen.add(edge.before)
                pending.append(edge.before)
    return list(found)


def _edges(read: "_Query", table: str, deciding: Iterable[str]) -> Iterator[Edge]:
    own = Column(table)
    rows = read.rows()
    for name in deciding:
        rows |= {before for before, _ in read.origins(name)}
    yield from (Edge(before, own, ROWS) for before in sorted(rows))
    for name in read.names:
        after = Column(table, name)
        yield Edge(own, after, ROWS)
        yield from (Edge(before, after, by) for before, by in _direct(read, name))


def _direct(read: "_Query", name: str) -> list[_Origin]:
    """What a column comes from; a column that decides rows besides is there twice."""
    return sorted(read.origins(name))


@dataclass
class _Macro:
    """A macro and its text; no body where it cannot be followed."""

    text: str
    parameters: list[str] = field(default_factory=list)
    body: exp.Expr | None = None


@dataclass
class _Query:
    """One file's query: what its columns come from, in the tables that it reads."""

    file: str
    text: str
    schema: Mapping[str, Mapping[str, list[str]]]
    macros: Mapping[str, _Macro]
    _scope: Scope = field(init=False)
    _origins: dict[tuple[int, str], set[_Origin]] = field(default_factory=dict)
    _rows: dict[int, set[Column]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        typed: dict[str, object] = {
            schema: {table: dict.fromkeys(names, "unknown") for table, names in tables.items() if names}
            for schema, tables in self.schema.items()
            if any(tables.values())
        }
        try:
            _require_known_macros(self.text, self.macros)
            tree = _expanded(sqlglot.parse_one(self.text, dialect=_DIALECT), self.macros)
            tree = qualify(tree, dialect=_DIALECT, schema=typed, validate_qualify_columns=False, identify=False)
            scope = build_scope(tree)
            if scope is not None:
                _require_known_forms(tree, scope)
        except SqlglotError as error:
            raise ConfigurationError(
                f"{self.file}: the lineage cannot follow this SQL, though DuckDB may run it: {_said(error)}"
            ) from error
        if scope is None:
            raise ConfigurationError(f"{self.file}: expected a query, found {type(tree).__name__}.")
        self._scope = scope

    @property
    def names(self) -> list[str]:
        """Its columns."""
        return [name for name in _names(self._scope) if name != _ALL]

    def origins(self, name: str) -> set[_Origin]:
        """What one of its columns comes from. Raises ConfigurationError if it has no such column."""
        names = _names(self._scope)
        if {_ALL, ""}.isdisjoint(names) and name.lower() not in (each.lower() for each in names):
            raise ConfigurationError(f"{self.file}: expected a column {name}, found {', '.join(names)}.")
        return self._of_column(self._scope, name)

    def rows(self) -> set[Column]:
        """What decides which rows it reads and gives."""
        return set(self._of_rows(self._scope))

    def _of_column(self, scope: Scope, name: str) -> set[_Origin]:
        key = (id(scope), name)
        if key not in self._origins:
            self._origins[key] = set()  # A recursive query asks for itself.
            self._origins[key] = self._find_column(scope, name)
        return self._origins[key]

    def _find_column(self, scope: Scope, name: str) -> set[_Origin]:
        tree = scope.expression
        if scope.set_operation_scopes:
            names, by_name = _names(scope), tree.args.get("by_name")
            found: set[_Origin] = set()
            for part in scope.set_operation_scopes:
                own = _names(part)
                if by_name:
                    found |= self._of_column(part, name) if name in own or _ALL in own else set()
                    continue
                same_place = own[names.index(name)] if name in names and len(own) == len(names) else name
                found |= self._of_column(part, same_place)
            return found
        if not isinstance(tree, exp.Select):
            return self._of_expression(scope, tree)
        for projection in tree.selects:
            if projection.alias_or_name == name:
                return self._of_expression(scope, projection)
        # A star over a table whose columns nobody knows, or an expression that gives several columns.
        found = {origin for source in _read_by(scope).values() for origin in self._of_source(source, name)}
        for projection in tree.selects:
            if not isinstance(projection, exp.Star) and projection.alias_or_name in ("", _ALL):
                found |= self._of_expression(scope, projection)
        return found

    def _of_source(self, source: Scope | exp.Table, name: str) -> set[_Origin]:
        if isinstance(source, Scope):
            return self._of_column(source, name)
        known = {each.lower(): each for each in self.schema.get(source.db, {}).get(source.name, [])}
        names = [known.get(name.lower(), name)] if not known or name.lower() in known else list(known.values())
        return {(Column(_called(source), each), VALUE) for each in names}

    def _of_expression(self, scope: Scope, expression: exp.Expr) -> set[_Origin]:
        """What an expression reads, subqueries and the windows that it names included.

        The argument of an aggregate makes its value; its filter and its window decide which rows count.
        """
        found: set[_Origin] = set()
        for node in expression.walk(prune=lambda node: isinstance(node, exp.Query | exp.Window | exp.Filter)):
            if isinstance(node, exp.Query):
                found |= self._of_subquery(scope, node)
            elif isinstance(node, exp.Column):
                found |= self._of_reference(scope, node)
            elif isinstance(node, exp.TableColumn):
                found |= self._of_whole(_around(scope, node.name))
            elif isinstance(node, exp.Columns):
                found |= {origin for source in _read_by(scope).values() for origin in self._of_whole(source)}
            elif isinstance(node, exp.Window | exp.Filter):
                found |= self._of_expression(scope, node.this)
                for part in _framing(scope, node):
                    found |= {(column, ROWS) for column, _ in self._of_expression(scope, part)}
        return found

    def _of_whole(self, source: Scope | exp.Table | None) -> set[_Origin]:
        """All columns of a table, or of a query."""
        if source is None:
            return set()
        if isinstance(source, Scope):
            return {origin for name in _names(source) for origin in self._of_column(source, name)}
        names = self.schema.get(source.db, {}).get(source.name) or [_ALL]
        return {(Column(_called(source), name), VALUE) for name in names}

    def _of_reference(self, scope: Scope, column: exp.Column) -> set[_Origin]:
        self._require(scope, column)
        source = _around(scope, column.table)
        if source is not None:
            return self._of_source(source, column.name)
        return {origin for source in _read_by(scope).values() for origin in self._of_source(source, column.name)}

    def _require(self, scope: Scope, column: exp.Column) -> None:
        """Refuse a column that no table in its scope has, where the columns of all of them are known."""
        name = column.name.lower()
        source = _around(scope, column.table)
        if column.table and source is None:
            return  # A field of a structure.
        read = [source] if source is not None else _sources_around(scope)
        known = [self._known(each) for each in read]
        listed = [each for names in known if names is not None for each in names]
        if not read or None in known or name in (*map(str.lower, listed), *_PSEUDO) or _is_named_besides(scope, column):
            return
        asked, found = column.sql(dialect=_DIALECT), ", ".join(dict.fromkeys(listed))
        raise ConfigurationError(f"{self.file}: there is no column {asked}: expected one of {found}.")

    def _known(self, source: Scope | exp.Table) -> list[str] | None:
        """The columns of what stands in FROM; None where not all are known."""
        if isinstance(source, exp.Table):
            alias = source.args.get("alias")
            renamed = isinstance(alias, exp.TableAlias) and alias.args.get("columns")
            return None if renamed else self.schema.get(source.db, {}).get(source.name) or None
        tree = source.expression
        names = _names(source)
        followed = isinstance(tree, exp.Query) and not tree.args.get("by_name")
        return names if followed and names and {_ALL, ""}.isdisjoint(names) else None

    def _of_subquery(self, scope: Scope, query: exp.Query) -> set[_Origin]:
        inner = query.unnest()
        found: set[_Origin] = set()
        for child in scope.subquery_scopes:
            if child.expression is inner:
                found |= {(column, ROWS) for column in self._of_rows(child)}
                for name in _names(child):
                    found |= self._of_column(child, name)
        return found

    def _of_rows(self, scope: Scope) -> set[Column]:
        if id(scope) not in self._rows:
            self._rows[id(scope)] = set()
            self._rows[id(scope)] = self._find_rows(scope)
        return self._rows[id(scope)]

    def _find_rows(self, scope: Scope) -> set[Column]:
        read = list(_read_by(scope).values())
        found = {Column(_called(source)) for source in read if isinstance(source, exp.Table)}
        inner = [source for source in read if isinstance(source, Scope)]
        for part in [*scope.set_operation_scopes, *inner]:
            found |= self._of_rows(part)
        tree = scope.expression
        if scope.set_operation_scopes and not (isinstance(tree, exp.Union) and tree.args.get("distinct") is False):
            # Only UNION ALL looks at no values.
            found |= {column for part in scope.set_operation_scopes for column, _ in self._of_whole(part)}
        for expression in _deciding(scope.expression):
            found |= {column for column, _ in self._of_expression(scope, expression)}
        return found


def _said(error: SqlglotError) -> str:
    """What is wrong, without the terminal's colours that the message holds."""
    listed = error.errors if isinstance(error, ParseError) else []
    return f"line {listed[0]['line']}: {listed[0]['description']}" if listed else str(error)


def _names(scope: Scope) -> list[str]:
    return scope.expression.named_selects if isinstance(scope.expression, exp.Query) else []


def _called(table: exp.Table) -> str:
    return f"{table.db}.{table.name}" if table.db else table.name


def _read_by(scope: Scope) -> dict[str, Scope | exp.Table]:
    """What stands in FROM and the joins, by the name that columns use."""
    return {name: scope.sources[name] for name, _ in scope.references if name in scope.sources}


def _around(scope: Scope, name: str) -> Scope | exp.Table | None:
    """What columns of this name read; a correlated subquery reads what is around it."""
    around: Scope | None = scope
    while around is not None and name:
        read = _read_by(around)
        if name in read:
            return read[name]
        around = around.parent
    return None


def _sources_around(scope: Scope) -> list[Scope | exp.Table]:
    """What stands in FROM here and around, where a name without a table is looked for."""
    found: list[Scope | exp.Table] = []
    around: Scope | None = scope
    while around is not None:
        found += _read_by(around).values()
        around = around.parent
    return found


def _is_named_besides(scope: Scope, column: exp.Column) -> bool:
    """Whether a name without a table is that of a table, of another column of the query, or of a parameter."""
    name = column.name.lower()
    named: set[str] = set()
    around: Scope | None = scope
    while around is not None:
        named |= {each.lower() for each in (*around.sources, *_names(around))}
        around = around.parent
    lambdas = (node for node in _ancestors(column) if isinstance(node, exp.Lambda))
    named |= {each.name.lower() for node in lambdas for each in node.expressions}
    argument = isinstance(column.parent, exp.PropertyEQ | exp.Kwarg) and column.arg_key == "this"
    return not column.table and (argument or name in named)


def _ancestors(node: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None:
        node = node.parent
        yield node


def _require_known_macros(text: str, macros: Mapping[str, _Macro]) -> None:
    """Refuse a query that calls, itself or by another macro, one whose body cannot take the place of its call."""
    seen: set[str] = set()
    pending = [text]
    while pending:
        called = {name.lower() for name in _CALLED.findall(code(pending.pop()))} & macros.keys() - seen
        for name in sorted(called):
            if macros[name].body is None:
                raise SqlglotError(
                    f"the macro {name} has parameters with defaults, several forms, or the name of a function of DuckDB"
                )
            pending.append(macros[name].text)
        seen |= called


def _require_known_forms(tree: exp.Expr, scope: Scope) -> None:
    """Refuse what reads columns in ways that are not followed."""
    if tree.find(exp.Pivot):
        raise SqlglotError("PIVOT or UNPIVOT")
    followed = {id(table) for part in scope.traverse() for table in part.tables}
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Anonymous):
            raise SqlglotError(f"the table function {table.this.name}")
        if id(table) not in followed:
            raise SqlglotError(f"where {_called(table)} is read")


def _framing(scope: Scope, node: exp.Window | exp.Filter) -> Iterator[exp.Expr]:
    """What a window or a filter says about rows."""
    if isinstance(node, exp.Filter):
        yield node.expression
        return
    yield from _parts(node, ("this",))
    for named in scope.expression.args.get("windows") or []:
        if node.alias and named.name == node.alias:
            yield from _parts(named, ("this",))


def _deciding(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a query that decide which rows there are, and which of them count in a column."""
    distinct, group = tree.args.get("distinct"), tree.args.get("group")
    if not isinstance(tree, exp.Query):
        return
    kept = any(tree.args.get(name) for name in ("limit", "offset", "fetch")) or isinstance(distinct, exp.Distinct)
    yield from _parts(tree, ("with_", "this", "expression", "expressions", "from_", *(() if kept else ("order",))))
    plain = isinstance(distinct, exp.Distinct) and not distinct.args.get("on")
    if isinstance(tree, exp.Select) and (plain or (group and group.args.get("all"))):
        yield from (each for each in tree.selects if not each.find(exp.AggFunc))


def _parts(node: exp.Expr, without: Iterable[str]) -> Iterator[exp.Expr]:
    for name, value in node.args.items():
        if name not in without:
            yield from (part for part in (value if isinstance(value, list) else [value]) if isinstance(part, exp.Expr))


def _macros(text: str) -> dict[str, _Macro]:
    found: dict[str, _Macro] = {}
    for each in duckdb.extract_statements(text):
        query = code(each.query).rstrip("; ")
        named = _MACRO.match(query)
        if named is None:
            continue
        name = named[1].lower()
        # A name that sqlglot knows is a function of its own to it, with arguments in places of their own.
        known = name in found or name.upper() in DuckDB.Parser.FUNCTIONS
        found[name] = _Macro(query) if known else _macro(query)
    return found


def _macro(text: str) -> _Macro:
    try:
        statement = sqlglot.parse_one(text, dialect=_DIALECT)
    except SqlglotError:
        return _Macro(text)
    if not isinstance(statement, exp.Create) or not isinstance(statement.this, exp.UserDefinedFunction):
        return _Macro(text)
    return _Macro(text, [each.name.lower() for each in statement.this.expressions], statement.expression)


def _expanded(tree: exp.Expr, macros: Mapping[str, _Macro]) -> exp.Expr:
    """The query with every macro in place of its call, so that what a macro reads, or does not read, is seen."""

    def expand(node: exp.Expr) -> exp.Expr:
        table = isinstance(node, exp.Table)
        call = node.this if isinstance(node, exp.Table) else node
        macro = macros.get(call.name.lower()) if isinstance(call, exp.Anonymous) else None
        if macro is None or macro.body is None:
            return node
        if len(macro.parameters) != len(call.expressions):
            raise SqlglotError(f"the macro {call.name}: expected {len(macro.parameters)} arguments")
        given = dict(zip(macro.parameters, call.expressions, strict=True))

        def fill(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.Column) and not part.table and part.name.lower() in given:
                return exp.Paren(this=given[part.name.lower()].copy())
            return part

        body = macro.body.copy().transform(fill)
        if table:
            alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(call.name))
            return exp.Subquery(this=body, alias=alias.copy()).transform(expand)
        return exp.Paren(this=body).transform(expand)

    return tree.transform(expand)
