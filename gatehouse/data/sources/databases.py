"""Read-only connections to databases: each shows one consistent snapshot and streams a query as Arrow tables."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.sources.declared import displayed_value
from gatehouse.errors import DeclarationError, SourceError
from gatehouse.runtime.redaction import error_text, public_address
from gatehouse.store import database

if TYPE_CHECKING:
    from sqlalchemy import Connection

ROWS_PER_FETCH = 20_000


class Database:
    """A database in one read transaction: whatever is written meanwhile, every query sees the same rows."""

    dialect: str
    failures: tuple[type[Exception], ...]
    _connection: Any

    def quote(self, name: str) -> str:
        """An identifier as the dialect writes it."""
        return database.quoted(name)

    def literal(self, value: int | str) -> str:
        """A value as the dialect writes it; text takes the type of the column that it is compared with."""
        return str(value) if isinstance(value, int) else database.text_literal(value)

    def by_bytes(self, expression: str) -> str:
        """A text expression that is ordered by its UTF-8 bytes, whatever the collation of the database."""
        raise NotImplementedError

    def columns(self, query: str) -> Mapping[str, str]:
        """Names of the columns of a query, with their types; empty types if the driver does not give them."""
        raise NotImplementedError

    def tables(self, query: str) -> Iterator[pa.Table]:
        """The rows of a query in order, in pieces whose size does not grow with the result.

        A column may have another type in each piece, if the database does not hold it to one.
        """
        raise NotImplementedError

    def first(self, query: str) -> tuple[Any, ...] | None:
        """The first row of a query; None if it has none."""
        rows = (table.slice(0, 1).to_pylist()[0] for table in self.tables(query) if table.num_rows)
        return next((tuple(row.values()) for row in rows), None)

    def close(self) -> None:
        """End the transaction and the connections."""
        self._connection.close()


def connect(url: str) -> Database:
    """Open what a URL names: PostgreSQL through ADBC, DuckDB files through duckdb, the rest through SQLAlchemy.

    Raises SourceError if it cannot be opened, without the password of the URL.
    """
    scheme = urlsplit(url).scheme
    with _opening(url):
        if scheme in ("postgresql", "postgres"):
            return _PostgreSQL(url)
        if scheme == "duckdb":
            return _DuckDB(None if urlsplit(url).path.removeprefix("/") in ("", ":memory:") else _file(url))
        return _AnyDatabase(url)


@contextmanager
def _opening(url: str) -> Iterator[None]:
    """Hide a driver's error about an address, which may repeat its password. All connecting happens in here."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:  # drivers raise errors of any kind
        if isinstance(error, ImportError) or type(error).__name__ == "NoSuchModuleError":
            scheme = urlsplit(url).scheme
            raise DeclarationError(
                f"The database {public_address(url)} needs a driver for {scheme}, which is not installed: "
                f"{error_text(error)}. Install its package where the source is read: docs/sources.md."
            ) from None
        raise SourceError(
            f"The database {public_address(url)} cannot be opened: {error_text(error)}. Check its "
            "address, the user and the password."
        ) from None


def _file(url: str) -> Path:
    """The file of `duckdb:///relative` or `sqlite:////absolute`, which opening must not create."""
    path = Path(unquote(urlsplit(url).path.removeprefix("/")))
    if not path.is_file():
        raise DeclarationError(f"The database file {str(path)!r} does not exist. Correct source.url.")
    return path


class _PostgreSQL(Database):
    """PostgreSQL through ADBC: binary COPY into Arrow. Each query has a connection of its own on the same snapshot."""

    def __init__(self, url: str) -> None:
        import adbc_driver_manager

        self.dialect = "postgresql"
        self.failures = (adbc_driver_manager.Error, OSError, pa.ArrowException)
        self._url = url
        self._connection = self._connect()
        with self._connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SELECT pg_export_snapshot()")
            self._snapshot = cursor.fetchone()[0]

    def _connect(self) -> Any:
        import adbc_driver_postgresql.dbapi as driver  # type: ignore[import-untyped]  # it has no stubs

        return driver.connect(self._url)

    def by_bytes(self, expression: str) -> str:
        return f'CAST({expression} AS text) COLLATE "C"'

    def columns(self, query: str) -> Mapping[str, str]:
        with self._reader(query) as reader:
            return {field.name: str(field.type) for field in reader.schema}

    def tables(self, query: str) -> Iterator[pa.Table]:
        with self._reader(query) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])

    @contextmanager
    def _reader(self, query: str) -> Iterator[Any]:
        with _opening(self._url):
            connection = self._connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                cursor.execute(f"SET TRANSACTION SNAPSHOT {self.literal(self._snapshot)}")
                cursor.execute("SET TimeZone = 'UTC'")
                cursor.execute(query)
                yield cursor.fetch_record_batch()
        finally:
            connection.close()


class _DuckDB(Database):
    """A DuckDB file, opened read-only: no process can write it meanwhile. Without one, queries name files themselves.

    Files that a query names (`read_parquet('data/*.parquet')`) are no part of the transaction.
    """

    def __init__(self, path: Path | None) -> None:
        import duckdb

        self.dialect = "duckdb"
        self.failures = (duckdb.Error, pa.ArrowException, OSError)
        self._connection = database.connect(path, access_mode="automatic" if path is None else "read_only")

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


class _AnyDatabase(Database):
    """Any database that SQLAlchemy knows, through a server-side cursor if its driver has one."""

    def __init__(self, url: str) -> None:
        import sqlalchemy

        parsed = sqlalchemy.make_url(url)
        self.failures = (sqlalchemy.exc.SQLAlchemyError, OSError)
        self._engine = sqlalchemy.create_engine(parsed)
        self.dialect = self._engine.dialect.name
        self._connection: Connection
        if self.dialect == "sqlite":
            _file(url)
            # The driver begins no transaction for a SELECT by itself.
            sqlalchemy.event.listen(self._engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
            sqlalchemy.event.listen(self._engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
            self._connection = self._engine.connect()
            return
        levels = {"mssql": "SNAPSHOT", "postgresql": "REPEATABLE READ", "mysql": "REPEATABLE READ"}
        level: Any = levels.get(self.dialect, "SERIALIZABLE")
        self._connection = self._engine.connect().execution_options(isolation_level=level)

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
        super().close()
        self._engine.dispose()


def _pieces(rows: Sequence[Sequence[Any]], names: list[str]) -> Iterator[pa.Table]:
    """Rows of a driver as Arrow tables, by halving until the values of each column have one type, none of them rounded.

    A value that Arrow has no type for stands alone in its piece, as bytes, which no declared type comes from.
    """

    def array(values: Sequence[Any]) -> pa.Array:
        types = {(type(value), getattr(value, "tzinfo", None) is None) for value in values if value is not None}
        if len(types) > 1 and not {kind for kind, _ in types} <= {int, float, Decimal}:
            raise pa.ArrowInvalid("values of several types")  # Arrow would make a date of a time, for example.
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            if len(values) > 1:
                raise
            return pa.array([str(values[0]).encode("utf-8", "backslashreplace")], pa.binary())

    try:
        yield pa.Table.from_arrays([array(values) for values in zip(*rows, strict=True)], names=names)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        half = len(rows) // 2
        yield from _pieces(rows[:half], names)
        yield from _pieces(rows[half:], names)


class KeyOrder:
    """Checks that the rows of a table come in a total order: each key above the one before it, none null.

    Columns are compared one after the other: numbers and times by value, text by its UTF-8 bytes.
    """

    def __init__(self, name: str, columns: tuple[str, ...], sensitive: Collection[str] = ()) -> None:
        self._name = name
        self._columns = columns
        self._sensitive = sensitive
        self._last: pa.Table | None = None

    def check(self, rows: pa.Table) -> None:
        """Check the next rows.

        Raises SourceError naming the first key that is null, repeated, or below the one before it.
        """
        if not self._columns or rows.num_rows == 0:
            return
        keys = rows.select(list(self._columns))
        for column in self._columns:
            if keys[column].null_count:
                raise SourceError(
                    f"Table {self._name}: order_by column {column} is null in {keys[column].null_count} rows, so they "
                    "have no place in the order. Leave them out in the query, or order by other columns."
                )
        keys = (pa.concat_tables([self._last, keys]) if self._last is not None else keys).combine_chunks()
        self._last = keys.slice(keys.num_rows - 1)
        before, after = keys.slice(0, keys.num_rows - 1), keys.slice(1)
        rising = pa.chunked_array([pa.repeat(False, before.num_rows)])
        for column in reversed(self._columns):
            equal = pc.equal(after[column], before[column])
            rising = pc.or_(pc.greater(after[column], before[column]), pc.and_(equal, rising))
        wrong = pc.index(rising, False).as_py()
        if wrong < 0:
            return
        first, second = (keys.slice(row, 1).to_pylist()[0] for row in (wrong, wrong + 1))
        texts = [
            ", ".join(f"{column}={displayed_value(column, value, self._sensitive)}" for column, value in key.items())
            for key in (first, second)
        ]
        if first == second:
            raise SourceError(
                f"Table {self._name}: several rows have the key {texts[1]}, so their order is not fixed. "
                "Add columns to order_by until no two rows share their values, or declare sort_on_ingest."
            )
        raise SourceError(
            f"Table {self._name}: the database puts the row with {texts[1]} after that with {texts[0]}: its order of "
            "these values is not that of the declared type. Declare the column's own type, or convert it in the query."
        )
