"""Read-only connections to databases: each shows one consistent snapshot and streams a query as Arrow tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from gatehouse.data.snapshot.access.in_memory import is_in_memory
from gatehouse.errors import DeclarationError, SourceError
from gatehouse.runtime.redaction import holds_password, said, shown
from gatehouse.store import database

if TYPE_CHECKING:
    from sqlalchemy import Connection

ROWS_PER_FETCH = 20_000


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

    def tables(self, query: str) -> Iterator[pa.Table]:
        """The rows of a query in order, in pieces whose size does not grow with the result.

        A column may have another type in each piece, where the database does not hold it to one.
        """

    def first(self, query: str) -> tuple[Any, ...] | None:
        """The first row of a query; None where it has none."""

    def close(self) -> None:
        """End the transaction and the connections."""


def connect(url: str) -> Database:
    """Open what a URL names: PostgreSQL through ADBC, DuckDB files through duckdb, the rest through SQLAlchemy.

    Raises:
        SourceError: if it cannot be opened, without the password of the URL.
    """
    scheme = urlsplit(url).scheme
    with _opening(url):
        if scheme in ("postgresql", "postgres"):
            return _PostgreSQL(url)
        if scheme == "duckdb":
            return _DuckDB(None if is_in_memory(url) else _file(url))
        return _AnyDatabase(url)


@contextmanager
def _opening(url: str) -> Iterator[None]:
    """Turn a driver's error about an address, in words that may repeat its password, into one that shows none of it.

    Whatever connects does it in here, so a driver's words about a later query may be shown.
    """
    try:
        yield
    except SourceError:
        raise
    except Exception as error:  # drivers raise errors of any kind
        raise SourceError(
            f"The database {shown(url)} cannot be opened: {said(error, holds_password(url))}. Check its address, "
            "the user and the password."
        ) from None


def _file(url: str) -> Path:
    """The file of `duckdb:///relative` or `sqlite:////absolute`, which opening must not create."""
    path = Path(unquote(urlsplit(url).path.removeprefix("/")))
    if not path.is_file():
        raise DeclarationError(f"The database file {str(path)!r} does not exist. Correct source.url.")
    return path


class _PostgreSQL:
    """PostgreSQL through ADBC: binary COPY into Arrow. Each query has a connection of its own on the same snapshot."""

    def __init__(self, url: str) -> None:
        import adbc_driver_manager
        import adbc_driver_postgresql.dbapi as driver  # type: ignore[import-untyped]  # it has no stubs

        self.dialect = "postgresql"
        self.failures: tuple[type[Exception], ...] = (adbc_driver_manager.Error, OSError, pa.ArrowException)
        self._url = url
        self._connect: Callable[[], Any] = lambda: driver.connect(url)
        self._first = self._connect()
        with self._first.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SELECT pg_export_snapshot()")
            self._snapshot = cursor.fetchone()[0]

    def quote(self, name: str) -> str:
        return database.quoted(name)

    def literal(self, value: int | str) -> str:
        return _literal(value)

    def by_bytes(self, expression: str) -> str:
        return f'CAST({expression} AS text) COLLATE "C"'

    def columns(self, query: str) -> Mapping[str, str]:
        with self._reader(query) as reader:
            return {field.name: str(field.type) for field in reader.schema}

    def tables(self, query: str) -> Iterator[pa.Table]:
        with self._reader(query) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])

    def first(self, query: str) -> tuple[Any, ...] | None:
        return _first(self.tables(query))

    @contextmanager
    def _reader(self, query: str) -> Iterator[Any]:
        with _opening(self._url):
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
    """A DuckDB file, opened read-only: no process can write it meanwhile. Without one, queries name files themselves.

    Files that a query names (`read_parquet('data/*.parquet')`) are no part of the transaction.
    """

    def __init__(self, path: Path | None) -> None:
        import duckdb

        self.dialect = "duckdb"
        self.failures: tuple[type[Exception], ...] = (duckdb.Error, pa.ArrowException, OSError)
        self._connection = database.connect(path, access_mode="automatic" if path is None else "read_only")

    def quote(self, name: str) -> str:
        return database.quoted(name)

    def literal(self, value: int | str) -> str:
        return _literal(value)

    def by_bytes(self, expression: str) -> str:
        return f"CAST({expression} AS VARCHAR)"

    def columns(self, query: str) -> Mapping[str, str]:
        relation = self._connection.cursor().sql(query)
        return {name: str(kind) for name, kind in zip(relation.columns, relation.types, strict=True)}

    def tables(self, query: str) -> Iterator[pa.Table]:
        cursor = self._connection.cursor()
        cursor.execute("SET TimeZone = 'UTC'")
        for batch in cursor.sql(query).to_arrow_reader(ROWS_PER_FETCH):
            yield pa.Table.from_batches([batch])

    def first(self, query: str) -> tuple[Any, ...] | None:
        return _first(self.tables(query))

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

    def tables(self, query: str) -> Iterator[pa.Table]:
        with self._result(query) as result:
            names = list(result.keys())
            for rows in result.partitions(ROWS_PER_FETCH):
                yield from _pieces(rows, names)

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


def _pieces(rows: Sequence[Sequence[Any]], names: list[str]) -> Iterator[pa.Table]:
    """Rows of a driver as Arrow tables, by halving until the values of each column have one type, none of them rounded.

    A value that Arrow has no type for stands alone in its piece, as bytes, which no declared type comes from.
    """
    try:
        arrays = [_of_one_type(values) for values in zip(*rows, strict=True)]
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        if len(rows) > 1:
            half = len(rows) // 2
            yield from _pieces(rows[:half], names)
            yield from _pieces(rows[half:], names)
            return
        arrays = [_alone(value) for value in rows[0]]
    yield pa.Table.from_arrays(arrays, names=names)


def _of_one_type(values: Sequence[Any]) -> pa.Array:
    """Values as an Arrow array; ArrowInvalid where Arrow would make another one of some: a date of a time, say."""
    types = {(type(value), getattr(value, "tzinfo", None) is None) for value in values if value is not None}
    if len(types) > 1 and not {kind for kind, _ in types} <= {int, float, Decimal}:
        raise pa.ArrowInvalid("values of several types")
    return pa.array(values)


def _alone(value: Any) -> pa.Array:
    try:
        return pa.array([value])
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return pa.array([str(value).encode("utf-8", "backslashreplace")], pa.binary())


def _first(tables: Iterator[pa.Table]) -> tuple[Any, ...] | None:
    return next((tuple(table.slice(0, 1).to_pylist()[0].values()) for table in tables if table.num_rows), None)


def _literal(value: int | str) -> str:
    return str(value) if isinstance(value, int) else database.text_literal(value)
