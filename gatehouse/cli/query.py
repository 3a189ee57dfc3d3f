"""`gatehouse data query` and `data head`: rows of artifacts, by SQL or the first ones. Sensitive values are hidden."""

import csv
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gatehouse.cli.output import JsonOption, StoreOption, find, open_store, print_json, print_table
from gatehouse.cli.place import PROJECT_FILE
from gatehouse.configuration.yaml_lines import read_yaml
from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.counting import counted
from gatehouse.store.database import unquoted_column
from gatehouse.store.querying import SOURCE, queried
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.store.tables import tables_in

if TYPE_CHECKING:
    import duckdb

_REFERENCE = re.compile(r'"([a-z][a-z-]*/[^"]+)"')
_LONGEST = 60
_TOLD = 5
_OFFERED = re.compile(r'\nDid you mean "[^"]*"\?')
"""What DuckDB offers in place of a table that is not there: one of its own."""


def query(
    sql: Annotated[str, typer.Argument(help="A query, e.g. 'select count(*) from \"datasets/flights\"'.")],
    on: Annotated[
        list[str] | None,
        typer.Option(help="A table, or a snapshot, whose tables the query names without quotes; may be repeated."),
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="Most rows to print; 0 for all.")] = 50,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Run SQL (DuckDB's) over artifacts. Values of sensitive columns are `***` wherever they stand.

    Artifacts stand in double quotes, in full or cut where unique: "datasets/flights", "splits/flights/sha256-3f9c", and
    a table of a snapshot as "snapshots/nyc".flights.
    """
    opened = open_store(store)
    named = {text: find(opened, text) for text in dict.fromkeys(_REFERENCE.findall(sql))}
    references = [find(opened, text) for text in on or ()]
    plain = {reference.name: reference for reference in references}
    if len(plain) < len(references):
        raise ConfigurationError("--on: two artifacts have one name. Name them in the query, in double quotes.")
    columns, found = _fetched(opened, named, plain, sql, 0 if as_csv or as_json else rows)
    _print(columns, found, rows, as_csv, as_json)


def head(
    reference: Annotated[str, typer.Argument(help="A table, or an artifact made of tables, such as a snapshot.")],
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="How many rows of each table.")] = 10,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the first rows of a table, or of each table of a snapshot. Values of sensitive columns are `***`."""
    opened = open_store(store)
    found = find(opened, reference)
    console, told = Console(soft_wrap=True, highlight=False, markup=False), {}
    for name, table in tables_in(opened, found).items():
        part = f'."{name}"' if name else ""
        columns, values = _fetched(opened, {"it": found}, {}, f'SELECT * FROM "it"{part} LIMIT {rows}', 0)
        places = _declared_first(name or found.name, columns)
        columns, values = (
            [columns[place] for place in places],
            [tuple(row[place] for place in places) for row in values],
        )
        if as_json:
            told[name or found.name] = [dict(zip(columns, row, strict=True)) for row in values]
            continue
        console.print(Text.assemble((name or found.name, "bold"), f"  {counted(table.rows, 'row')}"))
        _print(columns, values, 0, False, False)
    if as_json:
        print_json(told)


def _declared_first(table: str, columns: list[str]) -> list[int]:
    """Indices of the columns in the order of the project's declaration in this folder, as a snapshot sorts them."""
    try:
        body = read_yaml(Path(PROJECT_FILE).read_text(), PROJECT_FILE)
        declared = list(body["source"]["tables"][table]["columns"])
    except (OSError, UnicodeError, ConfigurationError, KeyError, TypeError):
        declared = []
    of = {column: place for place, column in enumerate(declared)}
    return sorted(range(len(columns)), key=lambda place: of.get(columns[place], len(of)))


def _fetched(
    store: ArtifactStore, named: dict[str, Reference], plain: dict[str, Reference], sql: str, rows: int
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names of a query's result, and its rows: at most one more than `rows`, or all if `rows` is 0."""
    import duckdb

    with queried(store, named, plain, partial(sensitive_columns, store)) as connection:
        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1:
                raise ConfigurationError(f"expected one query, found {len(statements)}: give each to a command.")
            result = connection.execute(statements[0])
            columns = [str(column[0]) for column in result.description or ()]
            return columns, result.fetchmany(rows + 1) if rows else result.fetchall()
        except duckdb.Error as error:
            said = _OFFERED.sub("", str(error))
            words = unquoted_column(connection, error)
            advice = f"\n{words}" if words else ""
            raise ConfigurationError(f"The query cannot be run: {said}{advice}{_names(connection, store)}") from None


def _names(connection: "duckdb.DuckDBPyConnection", store: ArtifactStore) -> str:
    views = connection.execute("SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    names = [
        view if schema == "main" else f'"{schema}".{view}' for schema, view in views if not view.startswith(SOURCE)
    ]
    given = ", ".join(names)
    if given:
        return f"\nTables that it may name: {given}."
    datasets = sorted({f'"datasets/{each.name}"' for each in store.references("datasets")})
    of_this = f": {', '.join(datasets[:_TOLD])}{', …' if len(datasets) > _TOLD else ''}" if datasets else ""
    return f'\nName a table as "datasets/NAME", or give it by --on{of_this}.'


def _print(columns: list[str], found: list[tuple[Any, ...]], rows: int, as_csv: bool, as_json: bool) -> None:
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in found])
    elif as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows([columns, *found])
    else:
        table = Table(*columns, box=None, pad_edge=False)
        for row in found[: rows or None]:
            table.add_row(*(Text(_shown(value)) for value in row))
        print_table(table)
        if rows and len(found) > rows:
            typer.echo(f"More than {rows:,} rows: --rows 0 prints all, --csv and --json too.", err=True)


def _shown(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
