"""Read-only connections to databases: each shows one consistent snapshot and streams a query as Arrow tables."""

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit
from uuid import UUID

import pyarrow as pa

from gatehouse.components.snapshot.sources.declared import shown
from gatehouse.components.snapshot.spec import ColumnType
from gatehouse.errors import SourceError

if TYPE_CHECKING:
    from sqlalchemy import Connection

ROWS_PER_FETCH = 20_000
_PYTHON_TYPES: dict[ColumnType, tuple[type, ...]] = {
    ColumnType.int64: (int, float, Decimal),
    ColumnType.double: (int, float, Decimal),
    ColumnType.string: (str, UUID),
    ColumnType.bool: (bool, int),
    ColumnType.timestamp: (dt.datetime, dt.date, str),
}


class Database(Protocol):
    """A database in one read transaction: whatever is written meanwhile, every query sees the same rows."""

    dialect: str
    failures: tuple[type[Exception], ...]

    def quote(self, name: str) -> str:
        """An identifier as the dialect writes it."""

    def literal(self, value: int | str) -> str:
        """A value as the dialect writes it; text takes the type of the column that it is compared with."""

    def by_bytes(self, expression: str) -> str:
        """A text expression that is ordered by its UTF-8 bytes, whatever the collation of the database."""

    def columns(self, query: str) -> Mapping[str, str]:
        """Names of the columns of a query, with their types; types are empty where the driver does not tell them."""

    def tables(
        self, query: str, name: str, kinds: Sequence[ColumnType], sensitive: Collection[str]
    ) -> Iterator[pa.Table]:
        """The rows of a query in order, in pieces whose size does not grow with the result.

        Args:
            query: A SELECT statement.
            name: The table's name, for messages.
            kinds: What its columns are declared as.
            sensitive: Columns whose values are not shown in messages.

        Raises:
            SourceError: if a value has no place in a column of the declared type.
        """

    def first(self, query: str) -> tuple[Any, ...] | None:
        """The first row of a query; None where it has none."""

    def close(self) -> None:
        """End the transaction and the connections."""


def connect(url: str) -> Database:
    """Open what a URL names: PostgreSQL through ADBC, DuckDB files through duckdb, the rest through SQLAlchemy."""
    scheme = urlsplit(url).scheme
    if scheme in ("postgresql", "postgres"):
        return _PostgreSQL(url)
    if scheme == "duckdb":
        return _DuckDB(_file(url))
    return _AnyDatabase(url)


def _file(url: str) -> Path:
    """The file of `duckdb:///relative` or `sqlite:////absolute`, which opening must not create."""
    path = Path(unquote(urlsplit(url).path.removeprefix("/")))
    if not path.is_file():
        raise SourceError(f"The database file {str(path)!r} does not exist. Correct source.url.")
    return path


class _PostgreSQL:
    """PostgreSQL through ADBC: binary COPY into Arrow. Each query has a connection of its own on the same snapshot."""

    def __init__(self, url: str) -> None:
        import adbc_driver_manager
        import adbc_driver_postgresql.dbapi as driver  # type: ignore[import-untyped]  # it has no stubs

        self.dialect = "postgresql"
        self.failures: tuple[type[Exception], ...] = (adbc_driver_manager.Error, OSError, pa.ArrowException)
        self._connect: Callable[[], Any] = lambda: driver.connect(url)
        self._first = self._connect()
        with self._first.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SELECT pg_export_snapshot()")
            self._snapshot = cursor.fetchone()[0]

    def quote(self, name: str) -> str:
        return _double_quoted(name)

    def literal(self, value: int | str) -> str:
        return _literal(value)

    def by_bytes(self, expression: str) -> str:
        return f'CAST({expression} AS text) COLLATE "C"'

    def columns(self, query: str) -> Mapping[str, str]:
        with self._reader(query) as reader:
            return {field.name: str(field.type) for field in reader.schema}

    def tables(
        self, query: str, name: str, kinds: Sequence[ColumnType], sensitive: Collection[str]
    ) -> Iterator[pa.Table]:
        with self._reader(query) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])

    def first(self, query: str) -> tuple[Any, ...] | None:
        return _first(self.tables(query, "", (), ()))

    @contextmanager
    def _reader(self, query: str) -> Iterator[Any]:
        connection = self._connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                cursor.execute(f"SET TRANSACTION SNAPSHOT {_literal(self._snapshot)}")
                cursor.execute("SET TimeZone = 'UTC'")
                cursor.execute(query)
                yield cursor.fetch_record_batch()
        finally:
            connection.close()

    def close(self) -> None:
        self._first.close()


class _DuckDB:
    """A DuckDB file, opened read-only: no process can write it while it is read."""

    def __init__(self, path: Path) -> None:
        import duckdb

        self.dialect = "duckdb"
        self.failures: tuple[type[Exception], ...] = (duckdb.Error, pa.ArrowException, OSError)
        self._connection = duckdb.connect(str(path), read_only=True)

    def quote(self, name: str) -> str:
        return _double_quoted(name)

    def literal(self, value: int | str) -> str:
        return _literal(value)

    def by_bytes(self, expression: str) -> str:
        return f"CAST({expression} AS VARCHAR)"

    def columns(self, query: str) -> Mapping[str, str]:
        relation = self._connection.cursor().sql(query)
        return {name: str(kind) for name, kind in zip(relation.columns, relation.types, strict=True)}

    def tables(
        self, query: str, name: str, kinds: Sequence[ColumnType], sensitive: Collection[str]
    ) -> Iterator[pa.Table]:
        cursor = self._connection.cursor()
        cursor.execute("SET TimeZone = 'UTC'")
        for batch in cursor.sql(query).to_arrow_reader(ROWS_PER_FETCH):
            yield pa.Table.from_batches([batch])

    def first(self, query: str) -> tuple[Any, ...] | None:
        return _first(self.tables(query, "", (), ()))

    def close(self) -> None:
        self._connection.close()


class _AnyDatabase:
    """Any database that SQLAlchemy knows, through a server-side cursor where its driver has one."""

    def __init__(self, url: str) -> None:
        import sqlalchemy

        parsed = sqlalchemy.make_url(url)
        if parsed.get_backend_name() == "sqlite":
            _file(url)
        self.failures: tuple[type[Exception], ...] = (sqlalchemy.exc.SQLAlchemyError, OSError)
        self._engine = sqlalchemy.create_engine(parsed)
        self.dialect = self._engine.dialect.name
        self._connection = self._begin()

    def _begin(self) -> "Connection":
        """A transaction in which every statement sees the same rows."""
        import sqlalchemy

        if self.dialect == "sqlite":
            # The driver begins no transaction for a SELECT by itself.
            sqlalchemy.event.listen(self._engine, "connect", _leave_transactions_to_us)
            sqlalchemy.event.listen(self._engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
            return self._engine.connect()
        level = {"mssql": "SNAPSHOT", "postgresql": "REPEATABLE READ", "mysql": "REPEATABLE READ"}
        wanted: Any = level.get(self.dialect, "SERIALIZABLE")
        return self._engine.connect().execution_options(isolation_level=wanted)

    def quote(self, name: str) -> str:
        return str(self._engine.dialect.identifier_preparer.quote_identifier(name))

    def literal(self, value: int | str) -> str:
        import sqlalchemy

        kind = sqlalchemy.BigInteger() if isinstance(value, int) else sqlalchemy.String()
        bound = sqlalchemy.literal(value, kind)
        return str(bound.compile(dialect=self._engine.dialect, compile_kwargs={"literal_binds": True}))

    def by_bytes(self, expression: str) -> str:
        if self.dialect in ("mysql", "mariadb"):
            return f"CAST({expression} AS BINARY)"
        if self.dialect == "postgresql":
            return f'CAST({expression} AS text) COLLATE "C"'
        return f"{expression} COLLATE BINARY" if self.dialect == "sqlite" else expression

    def columns(self, query: str) -> Mapping[str, str]:
        with self._result(query) as result:
            return dict.fromkeys(result.keys(), "")

    def tables(
        self, query: str, name: str, kinds: Sequence[ColumnType], sensitive: Collection[str]
    ) -> Iterator[pa.Table]:
        with self._result(query) as result:
            names = list(result.keys())
            for rows in result.partitions(ROWS_PER_FETCH):
                arrays = [
                    _array(values, kind, partial(_misfit, name, names, sensitive, rows, column))
                    for column, (values, kind) in enumerate(zip(zip(*rows, strict=True), kinds, strict=True))
                ]
                yield pa.Table.from_arrays(arrays, names=names)

    def first(self, query: str) -> tuple[Any, ...] | None:
        with self._result(query) as result:
            row = result.first()
        return None if row is None else tuple(row)

    def _result(self, query: str) -> Any:
        import sqlalchemy

        # A colon would open the name of a parameter.
        statement = sqlalchemy.text(query.replace(":", "\\:"))
        return self._connection.execution_options(stream_results=True).execute(statement)

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()


def _leave_transactions_to_us(connection: Any, _record: Any) -> None:
    connection.isolation_level = None


def _array(values: tuple[Any, ...], kind: ColumnType, misfit: Callable[[int, ColumnType], SourceError]) -> pa.Array:
    """Values of a driver as an Arrow array.

    Raises:
        SourceError: if one is of a type, or beyond 64 bits, that the declared type never comes from.
    """
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        if kind is ColumnType.bool and not any(isinstance(value, str | bytes) for value in values):
            return pa.array([None if value is None else int(value) for value in values], pa.int64())
        for index, value in enumerate(values):
            fits = value is None or isinstance(value, _PYTHON_TYPES[kind])
            if not fits or (isinstance(value, int) and not -(2**63) <= value < 2**63):
                raise misfit(index, kind) from None
        raise


def _misfit(
    name: str,
    columns: list[str],
    sensitive: Collection[str],
    rows: Sequence[Sequence[Any]],
    column: int,
    row: int,
    kind: ColumnType,
) -> SourceError:
    texts = [shown(key, value, sensitive) for key, value in zip(columns, rows[row], strict=True)]
    place = ", ".join(f"{key}={text}" for key, text in list(zip(columns, texts, strict=True))[:4])
    return SourceError(
        f"Table {name}, the row with {place}, column {columns[column]}: expected {kind} or a null, "
        f"found {texts[column]}. Correct the row, or convert the column in the query."
    )


def _first(tables: Iterator[pa.Table]) -> tuple[Any, ...] | None:
    return next((tuple(table.slice(0, 1).to_pylist()[0].values()) for table in tables if table.num_rows), None)


def _double_quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _literal(value: int | str) -> str:
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("'", "''")
    return f"'{escaped}'"
