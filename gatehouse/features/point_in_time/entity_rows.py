"""The entity rows of a retrieval: a data frame, or a query that runs once and keeps its result on disk."""

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import ConfigurationError
from gatehouse.features.point_in_time.source_files import SourceFiles
from gatehouse.store.hidden_values import error_words

TIME = "event_timestamp"
_NUMBERS = ("integer", "floating", "decimal", "mixed-integer", "mixed-integer-float")  # pandas' names of kinds.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Opened = AbstractContextManager[tuple[duckdb.DuckDBPyConnection, SourceFiles]]


class EntityRows:
    """Rows with keys and a time. The time is the column `event_timestamp`, else the only timestamp."""

    def __init__(self, schema: pa.Schema, table: Callable[[], pa.Table]) -> None:
        """Take the schema of the rows, and a function that makes them when they are first needed.

        Raises ConfigurationError if there is no time column.
        """
        self.columns: list[str] = schema.names
        times = [column.name for column in schema if pa.types.is_timestamp(column.type)]
        if TIME not in times and (TIME in schema.names or len(times) != 1):
            raise ConfigurationError(
                f"Entity rows: expected a column {TIME!r} or one timestamp, found {times or 'none'}. Cast or rename."
            )
        self.time: str = TIME if TIME in times else times[0]
        self._make = table
        self._table: pa.Table | None = None

    @classmethod
    def of_frame(cls, frame: pd.DataFrame) -> "EntityRows":
        """The rows of a frame without its index; texts in `event_timestamp` are parsed as times.

        Raises ConfigurationError if the times are missing, cannot be parsed, or are numbers, whose unit is unknown.
        """
        if TIME in frame and not pd.api.types.is_datetime64_any_dtype(frame[TIME]):
            kind = pd.api.types.infer_dtype(frame[TIME], skipna=True)
            if kind in _NUMBERS and frame[TIME].notna().any():
                raise ConfigurationError(
                    f"Entity rows: {TIME}: expected times, found {kind} values, which may be seconds or nanoseconds. "
                    f"Write pandas.to_datetime(rows[{TIME!r}], unit='s', utc=True) for seconds since 1970."
                )
            try:
                frame = frame.assign(**{TIME: pd.to_datetime(frame[TIME], utc=True, format="ISO8601")})
            except (TypeError, ValueError) as error:
                raise ConfigurationError(
                    f"Entity rows: {TIME}: expected times, or texts such as 2013-01-31T14:00:00Z, found {kind} values "
                    f"that cannot be read: {error_words(error)}"
                ) from error
        table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
        return cls(table.schema, lambda: table)

    @classmethod
    def of_query(cls, query: str, opened: Callable[[Path], Opened]) -> "EntityRows":
        """The rows of a DuckDB query, which runs once, when they are first needed.

        Raises ConfigurationError if the query cannot run, or its result has no time column.
        """

        def run(limit: str, read: Callable[[duckdb.DuckDBPyRelation], pa.Table]) -> pa.Table:
            with tempfile.TemporaryDirectory() as spill, opened(Path(spill)) as (connection, _):
                try:
                    return read(connection.sql(f"FROM (\n{query.rstrip().rstrip(';')}\n) {limit}"))
                except duckdb.OutOfMemoryException:
                    raise  # The stage reports it: the query is not wrong.
                except duckdb.Error as error:
                    raise ConfigurationError(
                        f"The query of the entity rows does not run: {error_words(error)}"
                    ) from error

        def kept_on_disk(relation: duckdb.DuckDBPyRelation) -> pa.Table:
            # The file is memory-mapped. It has no name, so it disappears with its last reader.
            reader = relation.to_arrow_reader(1 << 17)
            with tempfile.TemporaryDirectory(prefix="gatehouse-entity-rows-") as folder:
                path = f"{folder}/rows.arrow"
                with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, reader.schema) as writer:
                    for batch in reader:
                        writer.write_batch(batch)
                return pa.ipc.open_file(pa.memory_map(path)).read_all()

        schema = run("LIMIT 0", lambda relation: relation.to_arrow_table()).schema
        return cls(schema, lambda: run("", kept_on_disk))

    def table(self) -> pa.Table:
        """The rows."""
        if self._table is None:
            self._table = self._make()
        return self._table

    def span(self) -> tuple[datetime, datetime] | None:
        """The first time rounded down and the last rounded up to the microsecond; None without any."""
        times = self.table()[self.time]
        ends = pc.min_max(times.cast(pa.timestamp(times.type.unit)))
        if not ends["min"].is_valid:
            return None
        scale = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}[times.type.unit]
        first, last = ends["min"].value * scale // 1000, -(-ends["max"].value * scale // 1000)
        return EPOCH + timedelta(microseconds=first), EPOCH + timedelta(microseconds=last)
