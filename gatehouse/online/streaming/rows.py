"""Reads rows of a raw table from messages; a message that does not fit the columns is rejected with a reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from gatehouse.data.messages.values import DoesNotFit, body_of
from gatehouse.features.definitions.declarations import Source
from gatehouse.features.exact import reader_of
from gatehouse.online.streaming.stream import CLOCK_TOLERANCE, Message
from gatehouse.store.hidden_values import unless_hidden

_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Misfit:
    """A message that was rejected."""

    table: str
    partition: str
    position: tuple[int, ...]
    reason: str


class RowReader:
    """Reads the rows of one table.

    Args:
        source: The table, with its event time, and how long before that time a row may be known.
        schema: The columns of the table.
        key: Columns that may not be null.
    """

    def __init__(self, source: Source, schema: pa.Schema, key: Sequence[str]) -> None:
        self._source, self._key = source, key
        what = f"The table {source.table} cannot be streamed: its column"
        self._readers = {column.name: reader_of(column.type, f"{what} {column.name}") for column in schema}

    def read(self, message: Message, arrived: datetime) -> dict[str, Any]:
        """The row that a message holds.

        Fields that the table lacks are ignored; columns that the message lacks are null.

        Raises:
            DoesNotFit: if it holds no row, or its event time is further after its arrival than the table allows.
        """
        if message.flaw:
            raise DoesNotFit(message.flaw)
        row = self._values(body_of(message.payload), isinstance(message.payload, bytes))
        for column in self._key:
            if row[column] is None:
                raise DoesNotFit(f"column {column}: expected a value, as it tells rows apart, found none")
        about, column = row[self._source.event_time], self._source.event_time
        latest = arrived + self._source.lead + CLOCK_TOLERANCE
        if about is not None and not _EARLIEST <= about <= latest:
            raise DoesNotFit(
                f"column {column}: expected a time from 1900 on and until {latest.isoformat()}, as it arrived "
                f"{arrived.isoformat()}, {unless_hidden(f'found {about.isoformat()}')}"
            )
        return row

    def _values(self, body: Mapping[str, Any], typed: bool) -> dict[str, Any]:
        row = {}
        for column, read in self._readers.items():
            value = body.get(column)
            try:
                row[column] = None if value is None else read(value, typed)
            except ValueError as error:
                raise DoesNotFit(
                    f"column {column}: expected {error}, {unless_hidden(f'found {str(value)[:40]!r}')}"
                ) from None
        return row
