"""What streams of messages share, whatever the server: their declaration, and the parts that need no second read."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, model_validator

from gatehouse.data.snapshot.spec import ColumnType, TableSpec
from gatehouse.data.sources.base import EarlierPart, Opened, Raw
from gatehouse.store.canonical import digest_of

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
        for column, part in self.envelope.items():
            if self.columns.get(column) is not _ENVELOPE_TYPES[part]:
                raise ValueError(f"envelope: {part} needs a column declared as {_ENVELOPE_TYPES[part]}, found {column}")
        return self


@dataclass(frozen=True)
class Message:
    """One message."""

    place: Callable[[], str]
    payload: bytes | Mapping[str, bytes] | None
    envelope: Mapping[str, Any] = field(default_factory=dict)


class StreamReader(Opened):
    """Tables of messages.

    Only the record of the earlier snapshot says what was read: it is written before the snapshot is published. A reader
    that is killed leaves nothing behind, and the next one reads the same messages once more.
    """

    def __init__(self, name: str, tables: Mapping[str, StreamTable], time_zone: str) -> None:
        self._name, self._tables, self._time_zone = name, tables, time_zone

    def _declaration(self, table: str) -> dict[str, Any]:
        """What decides how a message of a table becomes a row."""
        spec = self._tables[table]
        stream = spec.model_dump(mode="json", include={"topic", "stream", "json_field", "columns", "envelope"})
        return stream | {"time_zone": self._time_zone}

    def _fingerprint(self, table: str, position: Mapping[str, Any]) -> str:
        return digest_of([self._declaration(table), dict(position)])

    def _unchanged(self, table: str, earlier_parts: Iterable[EarlierPart]) -> list[EarlierPart]:
        """The parts at the beginning that this declaration would read as before."""

        def same(part: EarlierPart) -> bool:
            return part.fingerprint == self._fingerprint(table, part.position)

        return list(itertools.takewhile(same, earlier_parts))

    def _typed(self, table: str, messages: Iterable[Message]) -> Raw:
        from gatehouse.data.sources.json_rows import rows_of

        return rows_of(messages, self._tables[table], name=table, time_zone=self._time_zone)
