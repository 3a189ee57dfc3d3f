"""Finds the raw columns that a feature comes from, with `sqlglot.lineage`.

Its value comes from the columns that sqlglot follows through the view and the staging queries. The other columns that
these queries and their macros name may decide which rows count: a superset, found by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import lineage

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.repository import OnDemand, Repository, View, staged_by, tables_of
from gatehouse.features.definitions.sql_text import macros_in

REQUEST = "request"
_DIALECT = "duckdb"
Columns = Mapping[str, Sequence[str]]
"""The columns of every raw table, by its name."""


@dataclass(frozen=True)
class Lineage:
    """Columns as `raw.<table>.<column>`, values of a request as `request.<name>`.

    Attributes:
        named: Columns that the view's queries name besides, for example in a filter or a join.
        exact: Whether sqlglot could follow the SQL; otherwise `values` are all columns of the tables read.
    """

    values: tuple[str, ...]
    named: tuple[str, ...]
    exact: bool = True


def lineage_of(repository: Repository, view: View | OnDemand, feature: str, columns: Columns) -> Lineage:
    """The columns that a feature comes from, through staging queries and, for an on-demand view, the views it reads.

    Raises ConfigurationError naming the file whose SQL cannot be parsed.
    """
    if isinstance(view, View):
        return _of_view(repository, view, feature, columns)
    named = _names(f"on_demand/{view.name}.sql", view.query)
    owners = {
        name: repository.views[owner] for owner in view.spec.views for name in repository.views[owner].spec.features
    }
    values = {f"{REQUEST}.{name}" for name in view.spec.request if name.lower() in named}
    besides, exact = set[str](), True
    for name, owner in owners.items():
        if name.lower() in named:
            before = _of_view(repository, owner, name, columns)
            values, besides, exact = values | {*before.values}, besides | {*before.named}, exact and before.exact
    return Lineage(tuple(sorted(values)), tuple(sorted(besides - values)), exact)


def _of_view(repository: Repository, view: View, feature: str, columns: Columns) -> Lineage:
    staged = {name: repository.staging[name] for name in staged_by(repository, [view.query])}
    texts = {f"views/{view.name}.sql": view.query} | {f"staging/{name}.sql": text for name, text in staged.items()}
    named = set[str]().union(*(_names(file, text) for file, text in texts.items()))
    words = " ".join(texts.values()).lower()
    for name, text in macros_in(repository.macros).items():
        if name in words:
            named |= _names("macros.sql", text)
    read = {table: columns.get(table, ()) for table in tables_of(repository, [view.query])}
    schema = {"raw": {table: dict.fromkeys(names, "unknown") for table, names in read.items() if names}}
    try:
        root = lineage(
            feature,
            view.query,
            schema=schema,
            sources={f"staging.{name}": text for name, text in staged.items()},
            dialect=_DIALECT,
            validate_qualify_columns=False,
        )
    except (SqlglotError, ValueError, KeyError, AssertionError):
        every = sorted(f"raw.{table}.{name}" for table, names in read.items() for name in names)
        return Lineage(tuple(every), (), exact=False)
    leaves = [(node.expression, node.name.rpartition(".")[2]) for node in root.walk() if not node.downstream]
    names = {f"{table.db}.{table.name}.{column}" for table, column in leaves if isinstance(table, exp.Table)}
    values = {name.replace('"', "") for name in names if name.startswith("raw.") and not name.endswith(".*")}
    besides = {f"raw.{table}.{name}" for table, columns in read.items() for name in columns if name.lower() in named}
    return Lineage(tuple(sorted(values)), tuple(sorted(besides - values)))


def _names(file: str, text: str) -> set[str]:
    """The names in a query that may be columns, in lower case."""
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect=_DIALECT) if tree]
    except SqlglotError as error:
        raise ConfigurationError(f"{file}: sqlglot cannot parse this SQL, though DuckDB may run it: {error}") from error
    return {node.name.lower() for tree in trees for node in tree.find_all(exp.Identifier)}
