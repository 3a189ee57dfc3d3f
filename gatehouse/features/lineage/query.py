"""Follows one query of a repository column by column: which columns of the tables it reads each result comes from.

Common table expressions and subqueries are followed too. Where SQL cannot be followed exactly, the result has too many
columns rather than too few.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, build_scope

from gatehouse.errors import ConfigurationError
from gatehouse.features.lineage.graph import ROWS, VALUE, By, Column
from gatehouse.features.lineage.macros import DIALECT, Macro, expanded, require_known_macros

_ALL = "*"
_PSEUDO = ("rowid", "filename", "file_row_number", "file_index")
Origin = tuple[Column, By]
"""A column that something comes from, and how."""


@dataclass
class Query:
    """The query of one file, and what its columns come from."""

    file: str
    text: str
    schema: Mapping[str, Mapping[str, list[str]]]
    macros: Mapping[str, Macro]
    _scope: Scope = field(init=False)
    _origins: dict[tuple[int, str], set[Origin]] = field(default_factory=dict)
    _rows: dict[int, set[Column]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        typed: dict[str, object] = {
            schema: {table: dict.fromkeys(names, "unknown") for table, names in tables.items() if names}
            for schema, tables in self.schema.items()
            if any(tables.values())
        }
        try:
            require_known_macros(self.text, self.macros)
            tree = expanded(sqlglot.parse_one(self.text, dialect=DIALECT), self.macros)
            tree = qualify(tree, dialect=DIALECT, schema=typed, validate_qualify_columns=False, identify=False)
            scope = build_scope(tree)
            if scope is not None:
                _require_known_forms(tree, scope)
        except (SqlglotError, AssertionError) as error:  # sqlglot asserts that it knows what is in a FROM.
            raise ConfigurationError(
                f"{self.file}: the lineage cannot follow this SQL, though DuckDB may run it: {_in_one_line(error)}"
            ) from error
        if scope is None:
            raise ConfigurationError(f"{self.file}: expected a query, found {type(tree).__name__}.")
        self._scope = scope

    @property
    def names(self) -> list[str]:
        """The names of the query's columns."""
        return [name for name in _names(self._scope) if name != _ALL]

    def origins(self, name: str) -> set[Origin]:
        """The origins of one column of the query. Raises ConfigurationError if it has no such column."""
        names = _names(self._scope)
        if {_ALL, ""}.isdisjoint(names) and name.lower() not in (each.lower() for each in names):
            raise ConfigurationError(f"{self.file}: expected a column {name}, found {', '.join(names)}.")
        return self._of_column(self._scope, name)

    def rows(self) -> set[Column]:
        """The columns that decide which rows the query reads and gives."""
        return set(self._of_rows(self._scope))

    def _of_column(self, scope: Scope, name: str) -> set[Origin]:
        key = (id(scope), name)
        if key not in self._origins:
            self._origins[key] = set()  # A recursive query asks for its own origins.
            self._origins[key] = self._find_column(scope, name)
        return self._origins[key]

    def _find_column(self, scope: Scope, name: str) -> set[Origin]:
        tree = scope.expression
        if scope.set_operation_scopes:
            names, by_name = _names(scope), tree.args.get("by_name")
            found: set[Origin] = set()
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
        # A star over a table with unknown columns, or an expression that gives several columns.
        found = {origin for source in _read_by(scope).values() for origin in self._of_source(source, name)}
        for projection in tree.selects:
            if not isinstance(projection, exp.Star) and projection.alias_or_name in ("", _ALL):
                found |= self._of_expression(scope, projection)
        return found

    def _of_source(self, source: Scope | exp.Table, name: str) -> set[Origin]:
        if isinstance(source, Scope):
            return self._of_column(source, name)
        known = {each.lower(): each for each in self.schema.get(source.db, {}).get(source.name, [])}
        names = [known.get(name.lower(), name)] if not known or name.lower() in known else list(known.values())
        return {(Column(_full_name(source), each), VALUE) for each in names}

    def _of_expression(self, scope: Scope, expression: exp.Expr) -> set[Origin]:
        """The columns that an expression reads, including subqueries and named windows.

        The argument of an aggregate gives its value; its filter and its window decide which rows count.
        """
        found: set[Origin] = set()
        for node in expression.walk(prune=lambda node: isinstance(node, exp.Query | exp.Window | exp.Filter)):
            if isinstance(node, exp.Query):
                found |= self._of_subquery(scope, node)
            elif isinstance(node, exp.Column):
                found |= self._of_reference(scope, node)
            elif isinstance(node, exp.TableColumn):
                found |= self._of_whole(_source_named(scope, node.name))
            elif isinstance(node, exp.Columns):
                found |= {origin for source in _read_by(scope).values() for origin in self._of_whole(source)}
            elif isinstance(node, exp.Window | exp.Filter):
                found |= self._of_expression(scope, node.this)
                for part in _framing(scope, node):
                    found |= {(column, ROWS) for column, _ in self._of_expression(scope, part)}
        return found

    def _of_whole(self, source: Scope | exp.Table | None) -> set[Origin]:
        """All columns of a table, or of a query."""
        if source is None:
            return set()
        if isinstance(source, Scope):
            return {origin for name in _names(source) for origin in self._of_column(source, name)}
        names = self.schema.get(source.db, {}).get(source.name) or [_ALL]
        return {(Column(_full_name(source), name), VALUE) for name in names}

    def _of_reference(self, scope: Scope, column: exp.Column) -> set[Origin]:
        self._require(scope, column)
        source = _source_named(scope, column.table)
        if source is not None:
            return self._of_source(source, column.name)
        return {origin for source in _read_by(scope).values() for origin in self._of_source(source, column.name)}

    def _require(self, scope: Scope, column: exp.Column) -> None:
        """Refuse a column that no table in its scope has, where the columns of all of them are known."""
        name = column.name.lower()
        source = _source_named(scope, column.table)
        if column.table and source is None:
            return  # A field of a structure.
        read = [source] if source is not None else _sources_in_reach(scope)
        known = [self._known(each) for each in read]
        listed = [each for names in known if names is not None for each in names]
        if (
            not read
            or None in known
            or name in (*map(str.lower, listed), *_PSEUDO)
            or _names_something_else(scope, column)
        ):
            return
        asked, found = column.sql(dialect=DIALECT), ", ".join(dict.fromkeys(listed))
        raise ConfigurationError(f"{self.file}: there is no column {asked}: expected one of {found}.")

    def _known(self, source: Scope | exp.Table) -> list[str] | None:
        """The columns of a source in FROM; None where not all are known."""
        if isinstance(source, exp.Table):
            alias = source.args.get("alias")
            renamed = isinstance(alias, exp.TableAlias) and alias.args.get("columns")
            return None if renamed else self.schema.get(source.db, {}).get(source.name) or None
        tree = source.expression
        names = _names(source)
        followed = isinstance(tree, exp.Query) and not tree.args.get("by_name")
        return names if followed and names and {_ALL, ""}.isdisjoint(names) else None

    def _of_subquery(self, scope: Scope, query: exp.Query) -> set[Origin]:
        inner = query.unnest()
        found: set[Origin] = set()
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
        found = {Column(_full_name(source)) for source in read if isinstance(source, exp.Table)}
        inner = [source for source in read if isinstance(source, Scope)]
        for part in [*scope.set_operation_scopes, *inner]:
            found |= self._of_rows(part)
        tree = scope.expression
        if scope.set_operation_scopes and not (isinstance(tree, exp.Union) and tree.args.get("distinct") is False):
            # UNION ALL is the only set operation that does not compare values.
            found |= {column for part in scope.set_operation_scopes for column, _ in self._of_whole(part)}
        for expression in _deciding(scope.expression):
            found |= {column for column, _ in self._of_expression(scope, expression)}
        return found


def _in_one_line(error: SqlglotError | AssertionError) -> str:
    """The error message, without terminal colours."""
    listed = error.errors if isinstance(error, ParseError) else []
    return f"line {listed[0]['line']}: {listed[0]['description']}" if listed else str(error)


def _names(scope: Scope) -> list[str]:
    return scope.expression.named_selects if isinstance(scope.expression, exp.Query) else []


def _full_name(table: exp.Table) -> str:
    return f"{table.db}.{table.name}" if table.db else table.name


def _read_by(scope: Scope) -> dict[str, Scope | exp.Table]:
    """The tables in FROM and the joins, by the name that columns use."""
    return {name: scope.sources[name] for name, _ in scope.references if name in scope.sources}


def _source_named(scope: Scope, name: str) -> Scope | exp.Table | None:
    """The table with the given name or alias; a correlated subquery can also read the tables of the outer query."""
    found = (_read_by(around).get(name) for around in _scopes_around(scope)) if name else ()
    return next((source for source in found if source is not None), None)


def _sources_in_reach(scope: Scope) -> list[Scope | exp.Table]:
    """The tables in FROM of this scope and of the outer scopes, where a column without a table name is looked up."""
    return [source for around in _scopes_around(scope) for source in _read_by(around).values()]


def _names_something_else(scope: Scope, column: exp.Column) -> bool:
    """Whether a name without a table is a table, another column of the query, or a parameter."""
    name = column.name.lower()
    named = {each.lower() for around in _scopes_around(scope) for each in (*around.sources, *_names(around))}
    lambdas = (node for node in _ancestors(column) if isinstance(node, exp.Lambda))
    named |= {each.name.lower() for node in lambdas for each in node.expressions}
    argument = isinstance(column.parent, exp.PropertyEQ | exp.Kwarg) and column.arg_key == "this"
    return not column.table and (argument or name in named)


def _scopes_around(scope: Scope) -> Iterator[Scope]:
    """A scope and its outer scopes, from the inside out."""
    around: Scope | None = scope
    while around is not None:
        yield around
        around = around.parent


def _ancestors(node: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None:
        node = node.parent
        yield node


def _require_known_forms(tree: exp.Expr, scope: Scope) -> None:
    """Refuse forms of SQL whose columns cannot be followed."""
    if tree.find(exp.Pivot):
        raise SqlglotError("PIVOT or UNPIVOT")
    followed = {id(table) for part in scope.traverse() for table in part.tables}
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Anonymous):
            raise SqlglotError(f"the table function {table.this.name}")
        if id(table) not in followed:
            raise SqlglotError(f"where {_full_name(table)} is read")


def _framing(scope: Scope, node: exp.Window | exp.Filter) -> Iterator[exp.Expr]:
    """The expressions with which a window or a filter decides about rows."""
    if isinstance(node, exp.Filter):
        yield node.expression
        return
    yield from _parts(node, ("this",))
    for named in scope.expression.args.get("windows") or []:
        if node.alias and named.name == node.alias:
            yield from _parts(named, ("this",))


def _deciding(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a query that decide which rows it has, and which of them count in a column."""
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
