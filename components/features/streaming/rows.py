"""Rows of a raw table from messages; a message that does not fit its columns is set aside with its reason."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from gatehouse.components.features.streaming.stream import Event
from gatehouse.errors import ConfigurationError


class MisfitError(Exception):
    """A message does not fit the table; the text is the reason."""


@dataclass(frozen=True)
class Misfit:
    """A message that was set aside."""

    table: str
    partition: str
    position: tuple[int, ...]
    reason: str


def read_rows(
    table: str, events: Iterable[Event], schema: pa.Schema, key: Sequence[str]
) -> tuple[list[dict[str, Any]], list[Misfit]]:
    """The rows that messages hold, in order, and the messages that hold none.

    Names in a message that the table lacks are passed over; columns that a message lacks are null.

    Args:
        table: Name of the table.
        events: The messages.
        schema: Its columns.
        key: Columns that may not be null.
    """
    readers = {column.name: _reader(table, column) for column in schema}
    rows: list[dict[str, Any]] = []
    misfits: list[Misfit] = []
    for event in events:
        try:
            rows.append(_row(event.payload, readers, key))
        except MisfitError as misfit:
            misfits.append(Misfit(table, event.partition, event.position, str(misfit)))
    return rows, misfits


def _row(
    payload: bytes | Mapping[str, bytes] | None, readers: Mapping[str, Callable[[Any], Any]], key: Sequence[str]
) -> dict[str, Any]:
    body = _body(payload)
    row: dict[str, Any] = {}
    for column, read in readers.items():
        value = body.get(column)
        try:
            row[column] = None if value is None else read(value)
        except (ValueError, OverflowError) as error:
            raise MisfitError(f"column {column}: expected {error}, found {str(value)[:40]!r}") from None
    for column in key:
        if row[column] is None:
            raise MisfitError(f"column {column}: expected a value, as it tells rows apart, found none")
    return row


def _body(payload: bytes | Mapping[str, bytes] | None) -> Mapping[str, Any]:
    if payload is None:
        raise MisfitError("the message has no value")
    try:
        if not isinstance(payload, bytes):
            return {name: value.decode() for name, value in payload.items()}
        body = json.loads(payload.decode(), parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise MisfitError(f"expected a JSON object in UTF-8: {error}") from None
    if not isinstance(body, dict):
        raise MisfitError(f"expected a JSON object, found {type(body).__name__}")
    return body


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _reader(table: str, column: pa.Field) -> Callable[[Any], Any]:
    kind = column.type
    if pa.types.is_integer(kind):
        low, high = (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
        if pa.types.is_unsigned_integer(kind):
            low, high = 0, 2**kind.bit_width - 1
        return lambda value: _integer(value, low, high)
    if pa.types.is_floating(kind):
        return _number
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _string
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_timestamp(kind) and kind.tz:
        return _moment
    raise ConfigurationError(
        f"The table {table} cannot be streamed: its column {column.name} is {kind}; expected integers, numbers, text, "
        "true or false, and times with a zone."
    )


def _integer(value: Any, low: int, high: int) -> int:
    found = int(value) if isinstance(value, str) else value
    if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high:
        raise ValueError("a whole number")
    return found


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a number")
    found = float(value)
    if not math.isfinite(found):
        raise ValueError("a finite number")
    return found


def _string(value: Any) -> str:
    if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("text in UTF-8")
    return value


def _boolean(value: Any) -> bool:
    found = {"true": True, "false": False}.get(value) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise ValueError("true or false")
    return found


def _moment(value: Any) -> datetime:
    if not isinstance(value, str):
        raise ValueError("a time in ISO 8601 with its zone")
    found = datetime.fromisoformat(value)
    if found.tzinfo is None:
        raise ValueError("a time in ISO 8601 with its zone")
    return found
