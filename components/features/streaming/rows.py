"""Reads rows of a raw table from messages; a message that does not fit the columns is rejected with a reason."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from gatehouse.components.artifacts.hidden_values import unless_hidden
from gatehouse.components.features.definitions.declarations import Source
from gatehouse.components.features.streaming.stream import CLOCK_TOLERANCE, Message
from gatehouse.components.messages.values import DoesNotFit, Unfit, body_of, boolean, double, moment, text, whole
from gatehouse.errors import ConfigurationError

_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
_MICROSECONDS = {"s": 1_000_000, "ms": 1000}
_Reader = Callable[[Any, bool], Any]


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
        self._readers = {column.name: _reader(source.table, column) for column in schema}

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


def _reader(table: str, column: pa.Field) -> _Reader:
    kind = column.type
    if pa.types.is_integer(kind):
        return lambda value, typed: whole(value, typed, kind.bit_width, pa.types.is_signed_integer(kind))
    if pa.types.is_floating(kind):
        return lambda value, typed: _finite(value, typed, kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda value, _: text(value)
    if pa.types.is_boolean(kind):
        return boolean
    if pa.types.is_timestamp(kind) and kind.tz:
        return lambda value, _: _held(moment(value), kind)
    raise ConfigurationError(
        f"The table {table} cannot be streamed: its column {column.name} is {kind}; expected integers, numbers, text, "
        "true or false, and times with a zone."
    )


def _finite(value: Any, typed: bool, kind: pa.DataType) -> float:
    """The number rounded as its column stores it, so that it compares equal with the stored value."""
    found = float(pa.scalar(double(value, typed), kind).as_py())
    if not math.isfinite(found):
        raise Unfit(f"a finite number of {kind.bit_width} bits")
    if isinstance(value, int) and int(found) != value:
        raise Unfit(f"a number that {kind.bit_width} bits hold")
    return found


def _held(found: datetime, kind: pa.DataType) -> datetime:
    if found.microsecond % _MICROSECONDS.get(kind.unit, 1):
        raise Unfit(f"a time in whole {kind.unit}, as its column has it")
    try:
        pa.scalar(found, kind)
    except (ValueError, OverflowError):
        raise Unfit("a time in the years 1678 to 2261, as its column is in ns") from None
    return found
