"""Reads messages and JSON lines into typed rows, one object a row."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from gatehouse.data.messages.values import DoesNotFit, Unfit, body_of, boolean, double, text, whole
from gatehouse.data.snapshot.spec import EPOCHS, ColumnType, TableSpec
from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.casts import TYPES
from gatehouse.data.sources.declared import (
    HIDDEN,
    Reject,
    check_columns,
    declare,
    misfit_row,
    reason_of,
    rejected_table,
    shown_misfit,
)
from gatehouse.data.sources.files import FileTable
from gatehouse.data.sources.messages import Message, StreamTable
from gatehouse.errors import DeclarationError

_JSON_KINDS = {bool: "bool", int: "number", float: "number", list: "list", dict: "object", type(None): "null"}


@dataclass(frozen=True)
class JsonRows:
    """Reads blocks of one file of JSON lines. A key that a row lacks is null."""

    name: str
    file: str
    spec: FileTable
    time_zone: str = ""

    def read(self, block: bytes, lines_before: Callable[[], int]) -> Raw:
        """The rows of a block. `lines_before` is called only if a row does not fit.

        Raises DeclarationError naming the first line that does not fit, unless the declaration sets such rows aside; or
        if the keys are not those declared.
        """

        def place(number: int) -> str:
            return f"{self.file}, line {lines_before() + number}"

        lines = enumerate(block.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)
        messages = (Message(partial(place, number), line) for number, line in lines if line.strip())
        delivered: dict[str, str] = {}
        raw = rows_of(messages, self.spec, name=self.name, time_zone=self.time_zone, delivered=delivered)
        # A declared key may be missing in one block; the guards see all blocks.
        check_columns(self.name, {**self.spec.columns, **delivered}, self.spec)
        return Raw(raw.table, raw.rejected, delivered)


def rows_of(
    messages: Iterable[Message],
    spec: TableSpec,
    *,
    name: str,
    time_zone: str,
    delivered: dict[str, str] | None = None,
) -> Raw:
    """The rows of messages in their order.

    `delivered` takes the keys that occur, with the kind of value that JSON gives them. Raises DeclarationError for the
    first message that does not fit, unless the declaration sets such messages aside.
    """
    envelope = spec.envelope if isinstance(spec, StreamTable) else {}
    kinds = {
        column: pa.string() if kind is ColumnType.timestamp and column not in envelope else TYPES[kind]
        for column, kind in spec.columns.items()
    }
    values: dict[str, list[Any]] = {column: [] for column in spec.columns}
    read: list[tuple[int, Message]] = []
    rejects: list[tuple[int, Reject]] = []
    for number, message in enumerate(messages):
        try:
            body = body_of(message.payload)
            if delivered is not None:
                delivered |= {key: "null" for key in body if key not in delivered}
                delivered |= {
                    key: _JSON_KINDS.get(type(value), "text") for key, value in body.items() if value is not None
                }
            row = _row(body, message, spec, envelope, time_zone)
        except DoesNotFit as misfit:
            reject = Reject(message.place(), misfit.column, misfit.reason, misfit.observed)
            if spec.on_invalid == "fail":
                raise DeclarationError(
                    f"Table {name}: {reject}. Correct the row, or declare on_invalid: reject to set such rows aside."
                ) from None
            rejects.append((number, reject._replace(raw=_shown_payload(message.payload, spec.sensitive))))
            continue
        read.append((number, message))
        for column, value in row.items():
            values[column].append(value)
    numbers: dict[str, int] = {}

    def place(_piece: pa.Table, _row: int, index: int) -> str:
        number, message = read[index]
        numbers[message.place()] = number
        return message.place()

    raw = declare((pa.table(values, pa.schema(kinds)),), spec, name=name, place=place, time_zone=time_zone)
    for body in raw.rejected.to_pylist() if raw.rejected is not None else ():
        rejects.append((numbers[body["place"]], Reject(**body)))
    return Raw(raw.table, rejected_table(reject for _, reject in sorted(rejects)))


def _row(
    body: Mapping[str, Any], message: Message, spec: TableSpec, envelope: Mapping[str, str], time_zone: str
) -> dict[str, Any]:
    """The values of a message, times as texts; DoesNotFit names the first that is not of the declared type."""
    row: dict[str, Any] = {}
    typed = isinstance(message.payload, bytes)
    for column, kind in spec.columns.items():
        value = body.get(column)
        if column in envelope:
            row[column] = message.envelope[envelope[column]]
        elif value is None:
            row[column] = None
        else:
            form = spec.times.get(column, "")
            try:
                match kind:
                    case ColumnType.int64:
                        row[column] = whole(value, typed)
                    case ColumnType.double:
                        row[column] = double(value, typed)
                    case ColumnType.bool:
                        row[column] = boolean(value, typed)
                    case _:
                        ticks = kind is ColumnType.timestamp and form in EPOCHS and type(value) in (int, float)
                        row[column] = str(value) if ticks else text(value)
            except Unfit:
                shown = shown_misfit(value, spec.sensitive)
                raise DoesNotFit(reason_of(kind, time_zone, form), column, shown) from None
    return row


def _shown_payload(payload: bytes | Mapping[str, bytes] | None, sensitive: tuple[str, ...]) -> str:
    if payload is None:
        return ""
    if isinstance(payload, bytes):
        return HIDDEN if sensitive else payload.decode("utf-8", "backslashreplace")
    return misfit_row({key: value.decode("utf-8", "backslashreplace") for key, value in payload.items()}, sensitive)
