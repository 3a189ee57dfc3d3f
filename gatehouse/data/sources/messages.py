"""Messages of a stream: what is declared of them, and how they become rows or are set aside."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from gatehouse.data.messages.values import DoesNotFit, Unfit, body_of, boolean, double, moment, text, whole
from gatehouse.data.snapshot.spec import ColumnType, TableSpec
from gatehouse.data.snapshot.time_formats import EPOCHS
from gatehouse.data.sources.base import Raw
from gatehouse.errors import DeclarationError, SourceError

Envelope = Literal["id", "offset", "partition", "key", "time"]
_ENVELOPE_TYPES: dict[Envelope, ColumnType] = {
    "id": ColumnType.string,
    "offset": ColumnType.int64,
    "partition": ColumnType.int64,
    "key": ColumnType.string,
    "time": ColumnType.timestamp,
}


class StreamTable(TableSpec):
    """One stream of messages, each of which becomes a row: columns are keys of its payload, absent keys are null."""

    on_invalid: Literal["fail", "reject"] = Field(
        "reject", description="A message that does not fit ends the run, or is set aside with its reason."
    )
    envelope: dict[str, Envelope] = Field(
        {},
        description="Columns that come from the message's envelope (its id or offset, partition, key or time) "
        "instead of its content.",
    )

    @model_validator(mode="after")
    def _keeps_its_order(self) -> "StreamTable":
        if self.order_by or self.sort_on_ingest:
            raise ValueError("order_by, sort_on_ingest: messages stand in the order of their stream")
        return self

    @model_validator(mode="after")
    def _envelope_is_typed(self) -> "StreamTable":
        for column, part in self.envelope.items():
            if self.columns.get(column) is not _ENVELOPE_TYPES[part]:
                raise ValueError(f"envelope: {part} needs a column declared as {_ENVELOPE_TYPES[part]}, found {column}")
        return self


@dataclass(frozen=True)
class Message:
    """One message: where it stands, what it says, and what its envelope says."""

    place: str
    payload: bytes | Mapping[str, bytes] | None
    envelope: Mapping[str, Any]


def rows_of(messages: Iterable[Message], spec: StreamTable, *, name: str, time_zone: str) -> Raw:
    """The rows of messages in their order; a payload is a JSON object, or fields of text.

    Raises:
        DeclarationError: for the first message that does not fit, where the declaration does not set them aside.
    """
    import pyarrow as pa

    from gatehouse.data.sources.declared import schema_of
    from gatehouse.data.sources.rejects import Reject, rejected_table

    values: dict[str, list[Any]] = {column: [] for column in spec.columns}
    converters = {column: _CONVERTERS[kind] for column, kind in spec.columns.items()}
    zone = ZoneInfo(time_zone) if time_zone else None
    rejects: list[Reject] = []
    for message in messages:
        try:
            row = _row(message, spec, converters, zone)
        except DoesNotFit as misfit:
            if spec.on_invalid == "fail":
                raise DeclarationError(
                    f"Table {name}, {message.place}: {misfit}. Declare on_invalid: reject to set such messages aside."
                ) from None
            raw = _text(message.payload, spec.sensitive)
            rejects.append(Reject(message.place, misfit.column, misfit.reason, misfit.found, raw))
        else:
            for column, value in row.items():
                values[column].append(value)
    return Raw(pa.table(values, schema=schema_of(spec.columns)), rejected_table(rejects))


def _row(
    message: Message, spec: StreamTable, converters: Mapping[str, Callable[..., Any]], zone: ZoneInfo | None
) -> dict[str, Any]:
    from gatehouse.data.sources.declared import shown_misfit

    body = body_of(message.payload)
    row = {}
    for column, convert in converters.items():
        if column in spec.envelope:
            row[column] = message.envelope[spec.envelope[column]]
            continue
        value = body.get(column)
        try:
            if column in spec.times and value is not None:
                row[column] = moment_in(value, spec.times[column], zone)
            else:
                row[column] = None if value is None else convert(value, zone, isinstance(message.payload, bytes))
        except ValueError as error:
            expected = str(error) or str(spec.columns[column])
            found = shown_misfit(value, spec.sensitive)
            raise DoesNotFit(f"expected {expected} or a null", column, found) from None
    return row


def _text(payload: bytes | Mapping[str, bytes] | None, sensitive: tuple[str, ...]) -> str:
    """A payload that does not fit, for people; of a table with a sensitive column, nothing of it."""
    from gatehouse.data.sources.declared import HIDDEN, misfit_row

    if payload is None:
        return ""
    if isinstance(payload, bytes):
        return HIDDEN if sensitive else payload.decode("utf-8", "backslashreplace")
    return misfit_row({key: value.decode("utf-8", "backslashreplace") for key, value in payload.items()}, sensitive)


_CONVERTERS: dict[ColumnType, Callable[[Any, ZoneInfo | None, bool], Any]] = {
    ColumnType.int64: lambda value, _, typed: whole(value, typed),
    ColumnType.double: lambda value, _, typed: double(value, typed),
    ColumnType.string: lambda value, _, __: text(value),
    ColumnType.bool: lambda value, _, typed: boolean(value, typed),
    ColumnType.timestamp: lambda value, zone, _: moment(value, zone),
}


def moment_in(value: Any, form: str, zone: ZoneInfo | None) -> datetime:
    """The time that a value of a message states in a declared form.

    Args:
        value: A number, or text.
        form: As `times` of a table has it.
        zone: Of times that state none.

    Raises:
        Unfit: saying what was expected.
    """
    import pyarrow as pa

    from gatehouse.data.sources.times import read_times, wanted

    what = wanted(str(zone or ""), form)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, str) and not (number and form in EPOCHS):
        raise Unfit(what)
    read = read_times(pa.array([str(value)]), str(zone or ""), form)
    assert read is not None  # `read_times` gives None only for other types, and this is a text
    found: datetime | None = read.values[0].as_py()
    if found is None:
        raise Unfit(", ".join([what, *(note for _, note in read.notes)]))
    return found


def moment_of(milliseconds: int) -> datetime:
    """The time that many milliseconds after 1970.

    Raises:
        SourceError: if it is beyond the year 9999.
    """
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise SourceError(
            f"A message says that it was sent {milliseconds:,} milliseconds after 1970, which is after the year 9999. "
            "Correct the clock or the ids of the sender."
        ) from None
