"""Tables of a SQL database: a query in key order, all tables in one consistent snapshot, cut into runs of rows."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from gatehouse.data.snapshot.spec import ColumnType, SourceBase, TableSpec
from gatehouse.data.sources.base import EarlierPart, Opened, Part, Raw, Url
from gatehouse.errors import DeclarationError, SourceError
from gatehouse.runtime.redaction import error_text, require_encoded
from gatehouse.store.canonical import digest_of

if TYPE_CHECKING:
    import pyarrow as pa

    from gatehouse.data.sources.databases import Database
    from gatehouse.data.sources.declared import RowPlace

_KEY_TYPES = (ColumnType.int64, ColumnType.string, ColumnType.timestamp)


class SqlTable(TableSpec):
    """One table, view or query of a database, in the order of `order_by`.

    The columns of `order_by` are a total order: no two rows share their values, and none is null. A table without such
    columns declares `sort_on_ingest`: then the database sorts by `order_by` and all other declared columns.
    """

    table: str = Field("", description="Table or view to read, `name` or `schema.name`; or give `query`.")
    query: str = Field("", description="A SELECT statement to read; or give `table`.")
    append_only: bool = Field(
        False,
        description="Rows are only added, with keys above the earlier ones, so that only the new ones are read.",
    )
    version_query: str = Field(
        "",
        description="Query of one value that changes whenever the rows change; without it, every run reads all rows.",
    )

    @model_validator(mode="after")
    def _is_repeatable(self) -> "SqlTable":
        if bool(self.table) == bool(self.query):
            raise ValueError("give either table or query")
        if not self.order_by and not self.sort_on_ingest:
            raise ValueError("give order_by, columns that order the rows totally, or sort_on_ingest: true")
        if self.append_only and (self.sort_on_ingest or self.version_query):
            raise ValueError("append_only excludes sort_on_ingest and version_query")
        if self.append_only and set(self.order_by) & set(self.sensitive):
            raise ValueError("append_only keeps the last key in the snapshot: order by columns that are not sensitive")
        for column in self.order_by:
            if self.columns[column] not in _KEY_TYPES:
                raise ValueError(f"order_by: expected a column declared as int64, string or timestamp, found {column}")
        return self


class SqlSource(SourceBase):
    """A database: PostgreSQL through ADBC, DuckDB files through duckdb, the rest through SQLAlchemy."""

    # A refused URL may hold a password.
    model_config = ConfigDict(hide_input_in_errors=True)

    url: Url = Field("", description="URL without a password, e.g. sqlite:///shop.db; or give `url_env`.")
    url_env: str = Field("", description="Environment variable that holds the URL, where it has a password.")
    kind: Literal["sql"] = Field("sql", description="What the source is.")
    rows_per_part: int = Field(131_072, ge=1, description="Rows that are read together and stored as one part.")
    tables: dict[str, SqlTable] = Field(min_length=1, description="The raw tables, by name.")

    @model_validator(mode="after")
    def _names_one_address(self) -> "SqlSource":
        if bool(self.url) == bool(self.url_env):
            raise ValueError("give either url or url_env")
        return self

    def address(self) -> str:
        """The URL, which the environment may hold.

        Raises DeclarationError if the variable is not set, or what it holds is not percent-encoded.
        """
        if self.url_env and not os.environ.get(self.url_env):
            raise DeclarationError(
                f"The environment variable {self.url_env} is not set: it holds the URL of the source. Set it, or "
                "correct source.url_env."
            )
        url = os.environ[self.url_env] if self.url_env else self.url
        return require_encoded(url, self.url_env or "source.url", DeclarationError)


class SqlReader(Opened):
    """A database in one read transaction, which begins with the first look and ends with `close`."""

    def __init__(self, spec: SqlSource) -> None:
        self._spec = spec
        self._url = spec.address()
        self._opened: Database | None = None
        self._state: dict[str, dict[str, Any]] = {}
        self._delivered: dict[str, Mapping[str, str]] = {}
        self._present: dict[str, tuple[str, ...]] = {}

    def state(self) -> Mapping[str, Any]:
        """By table: query, dialect and order; and what identifies the rows.

        For `append_only` the last key and the count; else the value of `version_query`; else a digest of the rows,
        which reads them all.
        """
        return {name: self._identify(name) for name in self._spec.tables}

    def _identify(self, table: str) -> dict[str, Any]:
        from gatehouse.data.snapshot.parts import logical_digest

        if table in self._state:
            return self._state[table]
        spec = self._spec.tables[table]
        self._check_columns(table)
        state: dict[str, Any] = {
            "query": canonical_query(spec.query or f"SELECT * FROM {spec.table}"),
            "dialect": self._database().dialect,
            "order_by": list(self._order(table)),
            "columns": dict(spec.columns),
        }
        if spec.append_only:
            ordered = ", ".join(f"{column} DESC" for column in self._sorted_by(table))
            last = self._first_row(table, f"{self._select(table, spec.order_by)} ORDER BY {ordered} LIMIT 1")
            state |= {"last_key": None if last is None else _plain(last), "rows": self._count(table, "")}
        elif spec.version_query:
            row = self._first_row(table, canonical_query(spec.version_query))
            state |= {"version": [str(value) for value in row or ()]}
        else:
            digests, count, before = [], 0, 0
            for pieces, _ in self._runs(table, None, 0):
                raw = self._typed(table, pieces, before)
                digests.append([logical_digest(rows) for rows in (raw.table, raw.rejected) if rows is not None])
                count += raw.table.num_rows
                before += sum(piece.num_rows for piece in pieces)
            state |= {"rows": count, "digest": digest_of(digests)}
        self._state[table] = state
        return state

    def parts(self, table: str, earlier_parts: tuple[EarlierPart, ...] = ()) -> Iterator[Part]:
        """Runs of `rows_per_part` rows in key order.

        The full runs of `earlier_parts` of an `append_only` table are yielded again without being read, and the rest
        is read from the last key on. A part holds its rows, so drop each before taking the next.
        """
        spec, size = self._spec.tables[table], self._spec.rows_per_part
        after: Any = None
        before = 0
        for part in earlier_parts if spec.append_only else ():
            full = part.position.get("rows") == size
            if not full or part.fingerprint != self._fingerprint(table, after, part.position):
                break
            yield Part(part.fingerprint, partial(self._again, table, after, before, part.position), part.position)
            after = part.position["key"]
            before += size
        if before:
            # All rows were counted for the state, and counting those after a key is cheap with an index.
            rows = self._identify(table)["rows"] - self._count(table, f"WHERE {self._above(table, after)}")
            if rows != before:
                raise SourceError(
                    f"Table {table}: declared append_only, but up to the key {self._key_text(table, after)} it has "
                    f"{rows} rows now, and had {before} when it was last read. Order by columns that only grow as "
                    "rows become visible, or remove append_only to read the table whole."
                )
        for pieces, key in self._runs(table, after, before):
            rows = sum(piece.num_rows for piece in pieces)
            position = {"key": key, "rows": rows} if spec.append_only else {}
            fingerprint = self._fingerprint(table, after, position) if spec.append_only else ""
            yield Part(fingerprint, partial(self._typed, table, pieces, before), position)
            after = key
            before += rows

    def _fingerprint(self, table: str, after: Any, position: Mapping[str, Any]) -> str:
        spec = self._spec.tables[table]
        read = [self._subquery(table), list(spec.order_by), dict(spec.columns), self._spec.time_zone]
        return digest_of([read, after, dict(position)])

    def _again(self, table: str, after: Any, before: int, position: Mapping[str, Any]) -> Raw:
        # Parts may be read by several threads, and a connection belongs to the one that iterates.
        with SqlReader(self._spec) as other:
            pieces, key = next(other._runs(table, after, before), ([], None))
            if key != position["key"]:
                raise SourceError(
                    f"Table {table}: the rows up to the key {self._key_text(table, position['key'])} changed."
                )
            return other._typed(table, pieces, before)

    def _typed(self, table: str, pieces: "list[pa.Table]", before: int) -> Raw:
        """The rows of a run that comes after `before` other ones."""
        from gatehouse.data.sources.declared import declare

        place = self._place(table, before)
        raw = declare(pieces, self._spec.tables[table], name=table, place=place, time_zone=self._spec.time_zone)
        return replace(raw, columns=self._delivered[table])

    def _check_columns(self, table: str) -> None:
        from gatehouse.data.sources.declared import check_columns, shown_names

        spec = self._spec.tables[table]
        with self._explained(table):
            columns = self._database().columns(f"SELECT * FROM {self._subquery(table)} WHERE 1 = 0")
        if spec.query:  # It may read files whose first line gives the names.
            columns = dict(zip(shown_names(columns, spec), columns.values(), strict=True))
        check_columns(table, columns, spec)
        self._delivered[table] = columns
        self._present[table] = tuple(column for column in spec.columns if column in columns)

    def _runs(self, table: str, after: Any, before: int) -> Iterator[tuple["list[pa.Table]", Any]]:
        """Runs of rows after a key, which come after `before` other ones, each with its last key."""
        from gatehouse.data.sources.databases import KeyOrder
        from gatehouse.data.sources.declared import declare
        from gatehouse.data.sources.row_runs import runs_in_pieces

        spec, size = self._spec.tables[table], self._spec.rows_per_part
        if table not in self._present:
            self._check_columns(table)
        query = self._select(table, self._present[table])
        query += f" WHERE {self._above(table, after)}" if after else ""
        query += f" ORDER BY {', '.join(self._sorted_by(table))}"
        key = () if spec.sort_on_ingest else spec.order_by
        key_columns = {column: spec.columns[column] for column in key}
        times = {column: form for column, form in spec.times.items() if column in key}
        keys = TableSpec(columns=key_columns, sensitive=spec.sensitive, times=times) if key else None
        order = KeyOrder(table, key, spec.sensitive)

        def checked() -> Iterator["pa.Table"]:
            seen = 0
            with self._explained(table):
                for rows in self._database().tables(query):
                    if not rows.num_rows:
                        continue
                    if keys:
                        place = self._place(table, before + seen)
                        typed = declare([rows], keys, name=table, place=place, time_zone=self._spec.time_zone)
                        order.check(typed.table)
                    seen += rows.num_rows
                    yield rows

        for pieces in runs_in_pieces(checked(), size):
            yield pieces, _plain(pieces[-1][column][-1].as_py() for column in key)

    def _place(self, table: str, before: int) -> "RowPlace":
        """Names a row that does not fit, in a piece after `before` rows, by the columns of the order.

        Its values may be in wrong columns, so next to a sensitive column only its number is shown.
        """
        columns = self._order(table)[:4]

        def place(piece: "pa.Table", row: int, number: int) -> str:
            if self._spec.tables[table].sensitive:
                return f"row {before + number + 1:,} in the order of {', '.join(columns)}"
            return "the row with " + ", ".join(f"{column}={piece[column][row].as_py()!r}" for column in columns)

        return place

    def _order(self, table: str) -> tuple[str, ...]:
        """The columns that the rows are sorted by."""
        spec = self._spec.tables[table]
        remaining = tuple(column for column in self._present[table] if column not in spec.order_by)
        return spec.order_by + remaining if spec.sort_on_ingest else spec.order_by

    def _sorted_by(self, table: str) -> list[str]:
        return [self._comparable(table, column) for column in self._order(table)]

    def _comparable(self, table: str, column: str) -> str:
        """An SQL expression for a column that sorts in the same order on every server."""
        quoted = self._database().quote(column)
        text = self._spec.tables[table].columns[column] is ColumnType.string
        return self._database().by_bytes(quoted) if text else quoted

    def _above(self, table: str, key: list[Any]) -> str:
        """Condition that a row's key is greater than `key`, column after column, that can use an index on the first."""
        condition = ""
        for column, value in reversed(list(zip(self._spec.tables[table].order_by, key, strict=True))):
            left, right = self._comparable(table, column), self._database().literal(value)
            equal = f"{left} >= {right} AND ({left} > {right} OR ({condition}))"
            condition = equal if condition else f"{left} > {right}"
        return condition

    def _count(self, table: str, condition: str) -> int:
        row = self._first_row(table, f"SELECT count(*) AS n FROM {self._subquery(table)} {condition}")
        return int(row[0]) if row else 0

    def _first_row(self, table: str, query: str) -> tuple[Any, ...] | None:
        with self._explained(table):
            return self._database().first(query)

    def _key_text(self, table: str, key: list[Any]) -> str:
        from gatehouse.data.sources.declared import displayed_value

        spec = self._spec.tables[table]
        values = zip(spec.order_by, key, strict=True)
        return ", ".join(f"{column}={displayed_value(column, value, spec.sensitive)}" for column, value in values)

    def _select(self, table: str, columns: tuple[str, ...]) -> str:
        return f"SELECT {', '.join(map(self._database().quote, columns))} FROM {self._subquery(table)}"

    def _subquery(self, table: str) -> str:
        spec = self._spec.tables[table]
        if spec.query:
            # The line break ends a comment on the query's last line.
            return f"({canonical_query(spec.query)}\n) AS source_rows"
        return ".".join(self._database().quote(name) for name in spec.table.split("."))

    def _database(self) -> "Database":
        from gatehouse.data.sources.databases import connect

        if self._opened is None:
            self._opened = connect(self._url)
        return self._opened

    @contextmanager
    def _explained(self, table: str) -> Iterator[None]:
        """Name the table in a driver's error. A driver may quote a row, so next to a sensitive column it is hidden."""
        database = self._database()
        try:
            yield
        except database.failures as error:
            words = error_text(error)
            if hidden := ", ".join(self._spec.tables[table].sensitive):
                words = f"{type(error).__name__}, whose text may quote a row and is not shown (sensitive: {hidden})"
            raise SourceError(
                f"Source {self._spec.name}, table {table}: the database ended the read: {words}. Nothing was "
                "published; correct it and run again."
            ) from None


def canonical_query(query: str) -> str:
    """A query without what its meaning does not depend on: line ends, trailing blanks and the last semicolon."""
    lines = [line.rstrip() for line in query.strip().splitlines()]
    return "\n".join(lines).rstrip("; \n")


def _plain(key: Iterable[Any]) -> list[int | str]:
    """A key as JSON: whole numbers as they are, everything else as the text that the database reads back."""
    return [value if isinstance(value, int) else str(value) for value in key]
