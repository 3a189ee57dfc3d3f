"""Bounded reads of Redis Streams: from the last message of the earlier snapshot to the newest one at the first look."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from gatehouse.data.messages.clients import moment_of, redis_client, unreachable
from gatehouse.data.sources.base import EarlierPart, Part, Raw, UrlSource, address
from gatehouse.data.sources.messages import Message, StreamReader, StreamTable
from gatehouse.errors import DeclarationError, SourceError
from gatehouse.runtime.redaction import holds_password
from gatehouse.store.identity import operational

if TYPE_CHECKING:
    from redis import Redis

_Entry = tuple[bytes, Mapping[bytes, bytes]]


class RedisStreamTable(StreamTable):
    """One Redis stream. Its envelope gives `id` and `time`."""

    stream: str = Field(min_length=1, description="Key of the stream.")
    json_field: str = Field(
        "", description="Field that holds a JSON object with the columns; empty if each field is a column."
    )

    @model_validator(mode="after")
    def _envelope_is_of_redis(self) -> "RedisStreamTable":
        if not set(self.envelope.values()) <= {"id", "time"}:
            raise ValueError("envelope: a Redis stream gives id and time")
        return self


class RedisStreamSource(UrlSource):
    """Streams of one Redis server, version 6.2 or later. Nothing is written there, and no consumer group is needed."""

    forgets: ClassVar[bool] = True
    kind: Literal["redis_stream"] = "redis_stream"
    messages_per_part: int = Field(50_000, ge=1, description="Messages that are read together and stored as one part.")
    timeout_seconds: float = operational(30, gt=0, description="How long the server may take for an answer.")
    tables: dict[str, RedisStreamTable] = Field(min_length=1)


class RedisStreamReader(StreamReader):
    """Redis streams, each up to the newest message at the first look."""

    def __init__(self, spec: RedisStreamSource) -> None:
        super().__init__(spec.name, spec.tables, spec.time_zone)
        self._spec = spec
        self._url = address(spec.url, spec.url_env)
        self._opened: Redis | None = None
        self._newest: dict[str, str] = {}

    def state(self) -> Mapping[str, Any]:
        """By table: the stream, the id of its newest message, and its declaration."""
        return {name: self._declaration(name) | {"to": self._watermark(name)} for name in self._tables}

    def parts(self, table: str, earlier_parts: tuple[EarlierPart, ...] = ()) -> Iterator[Part]:
        """Runs of `messages_per_part` messages in the order of their ids, counted from the first that was ever read.

        The full runs of `earlier_parts` are yielded without being read. Their short last one is read again with
        what came after it; if the stream no longer holds it whole, it stays as it is and a new run begins after it.
        """
        newest, kept, after = self._watermark(table), self._unchanged(table, earlier_parts), ""
        start = earlier_parts[0].position["from"] if earlier_parts else ""
        if not kept and earlier_parts and not self._between(table, start, start):
            raise SourceError(
                f"Table {table}: its declaration changed, so it has to be read again, but the stream no longer holds "
                f"its messages from {start} on. Keep the declaration, or give the source another name to start over."
            )
        last = kept[-1].position if kept else {}
        short = kept and last["messages"] < self._spec.messages_per_part and last["to"] != newest
        if short and len(self._between(table, last["from"], last["to"])) == last["messages"]:
            kept.pop()
        for part in kept:
            yield Part(part.fingerprint, partial(self._again, table, part.position), part.position)
            after = part.position["to"]
        if _order(after) > _order(newest):
            raise SourceError(
                f"Table {table}: the stream was read up to {after}, but its newest message is {newest} now: it was "
                "deleted and created again. Give the source another name to start over with it."
            )
        while _order(after) < _order(newest):
            entries = self._next(table, after, newest)
            if not entries:
                return
            position: dict[str, Any] = {"from": _id(entries[0]), "to": _id(entries[-1]), "messages": len(entries)}
            yield Part(self._fingerprint(table, position), partial(self._rows, table, entries), position)
            after = position["to"]

    def _next(self, table: str, after: str, newest: str) -> list[_Entry]:
        """The messages after one, which must still be there: then nothing behind it was trimmed."""
        size, stream = self._spec.messages_per_part, self._spec.tables[table].stream
        with self._explained(table):
            # One transaction: between the two answers nothing can be trimmed.
            both = self._redis().pipeline(transaction=True)
            both.xrange(stream, after or "-", after or "+", count=1)
            both.xrange(stream, f"({after}" if after else "-", newest, count=size)
            last_read, entries = both.execute()
        if after and not last_read:
            raise SourceError(
                f"Table {table}: the stream no longer holds the message {after}, up to which it was read, so messages "
                "after it may have been trimmed before they were read. Trim by MINID, not beyond what the newest "
                "snapshot holds, or give the source another name to start over with what is left."
            )
        return list(entries)

    def _again(self, table: str, position: Mapping[str, Any]) -> Raw:
        entries = self._between(table, position["from"], position["to"])
        if len(entries) != position["messages"]:
            raise SourceError(
                f"Table {table}: the stream no longer holds all messages from {position['from']} to {position['to']}; "
                "their rows are in the earlier snapshot alone."
            )
        return self._rows(table, entries)

    def _between(self, table: str, first: str, last: str) -> list[_Entry]:
        with self._explained(table):
            entries: Any = self._redis().xrange(self._spec.tables[table].stream, first, last)
        return list(entries)

    def _rows(self, table: str, entries: list[_Entry]) -> Raw:
        return self._typed(table, (_message(self._spec.tables[table], entry) for entry in entries))

    def _watermark(self, table: str) -> str:
        """Id of the newest message at the first look."""
        if table not in self._newest:
            stream = self._spec.tables[table].stream
            with self._explained(table):
                if not self._redis().exists(stream):
                    raise DeclarationError(f"Table {table}: Redis has no stream {stream!r}. Correct source.tables.")
                facts: Any = self._redis().xinfo_stream(stream)
            self._newest[table] = _text(facts["last-generated-id"])
        return self._newest[table]

    def _redis(self) -> "Redis":
        if self._opened is None:
            self._opened = redis_client(self._url, self._spec.timeout_seconds)
        return self._opened

    @contextmanager
    def _explained(self, table: str) -> Iterator[None]:
        """Turn the client's error into one that names the table and holds no credentials."""
        from redis.exceptions import RedisError

        try:
            yield
        except (RedisError, OSError, TypeError, ValueError) as error:  # the last two are about the URL's parameters
            what = f"Source {self._spec.name}, table {table}: Redis"
            raise unreachable(what, error, holds_password(self._url)) from None


def _message(spec: RedisStreamTable, entry: _Entry) -> Message:
    identity, fields = _id(entry), entry[1]
    payload: bytes | Mapping[str, bytes] | None
    if spec.json_field:
        payload = fields.get(spec.json_field.encode())
    else:
        payload = {key.decode("utf-8", "backslashreplace"): value for key, value in fields.items()}
    envelope = {"id": identity, "time": moment_of(int(identity.split("-")[0]))}
    return Message(f"message {identity}".__str__, payload, envelope)


def _id(entry: _Entry) -> str:
    return _text(entry[0])


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _order(identity: str) -> tuple[int, ...]:
    """An id as what it is ordered by; the empty one comes before all."""
    return tuple(int(number) for number in identity.split("-")) if identity else (0, 0)
