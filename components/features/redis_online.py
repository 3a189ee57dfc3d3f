"""Feature rows in Redis, in the layout that Feast's own clients read, written in order of (event, known).

One hash a key of an entity: under Feast's name for view and feature the value as a serialized `feast.types.Value`,
under `_ts:<view>` the event time as a protobuf timestamp. We add `_at:<view>`, event and known time in microseconds:
a row replaces another only if its pair is greater, so a correction with the same event time arrives and a straggler
does not. The comparison is made in Redis, so writers need no lock.

Reading gives what an offline join at the same moment gives: a row that is older than its view's time to live is null.
A plain Feast client reads the same hashes, and is given expired values with their status.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import ConfigurationError

if TYPE_CHECKING:
    from redis import Redis

BATCH = 4096
_STRING, _INT32, _INT64 = 2, 3, 4  # feast.value_type.ValueType
_BEGINNING = struct.Struct("<I")
# Compares and sets in one step. The pair is fixed-width text, so that its order is the order of the times.
_SCRIPT = """
local held = redis.call('HGET', KEYS[1], ARGV[1])
if held and held >= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV))
return 1
"""


@dataclass(frozen=True)
class OnlineView:
    """One feature view as Redis holds it.

    Attributes:
        name: Its name in Feast.
        keys: Join key columns.
        features: Feature columns.
        event: Column with the event timestamp.
        created: Column with the created timestamp; empty for none.
        ttl: How long a row stays fresh; None or zero for ever.
    """

    name: str
    keys: tuple[str, ...]
    features: tuple[str, ...]
    event: str
    created: str = ""
    ttl: timedelta | None = None


class RedisOnline:
    """Writes and reads the feature rows of one Feast project."""

    def __init__(self, client: "Redis", project: str) -> None:
        self._client = client
        self._project = project.encode()

    def write(self, view: OnlineView, rows: pa.Table) -> int:
        """Write rows, in any order and as often as wanted; of a key the greatest (event, known) stays.

        Returns:
            How many rows changed what is held.

        Raises:
            ConfigurationError: if a column has a type that Feast's layout has no place for.
        """
        script = str(self._client.script_load(_SCRIPT)).encode()
        return sum(self._send(view, rows.slice(at, BATCH), script) for at in range(0, rows.num_rows, BATCH))

    def _send(self, view: OnlineView, rows: pa.Table, script: bytes) -> int:
        keys = _entity_keys(view, rows, self._project)
        event = _microseconds(rows[view.event])
        created = _microseconds(rows[view.created], event) if view.created else event
        fields = [_field(view.name, feature) for feature in view.features]
        values = [_encoded(feature, rows[feature]) for feature in view.features]
        head = _bulk(b"EVALSHA") + _bulk(script) + _bulk(b"1")
        start = b"*%d\r\n" % (8 + 2 * len(fields)) + head
        at, ts = _bulk(b"_at:" + view.name.encode()), _bulk(b"_ts:" + view.name.encode())
        names = [_bulk(field) for field in fields]
        commands = []
        for key, happened, known, *cells in zip(keys, event.tolist(), created.tolist(), *values, strict=True):
            pair = b"%019d%019d" % (happened, max(happened, known))
            body = b"".join(name + _bulk(cell) for name, cell in zip(names, cells, strict=True))
            commands.append(start + _bulk(key) + at + _bulk(pair) + ts + _bulk(_timestamp(happened)) + body)
        return sum(int(reply) for reply in self._exchange(commands))

    def read(self, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
        """The features of `views` for each row of `keys`, in order; null where nothing fresh is held at `now`.

        Args:
            views: What to read; views with the same keys cost one look-up together.
            keys: One column a join key.
            now: The moment of the read, with its zone.

        Returns:
            One column a feature, in the order of `views`.
        """
        moment = round(now.timestamp() * 1e6)
        columns: dict[str, list[Any]] = {}
        for joined in _by_keys(views):
            fields = [name for view in joined for name in (b"_at:" + view.name.encode(), *_fields(view))]
            tail = b"".join(map(_bulk, fields))
            start = b"*%d\r\n" % (2 + len(fields)) + _bulk(b"HMGET")
            found = self._exchange([start + _bulk(key) + tail for key in _entity_keys(joined[0], keys, self._project)])
            by_field = list(zip(*found, strict=True)) if found else [()] * len(fields)
            offset = 0
            for view in joined:
                oldest = moment - view.ttl // timedelta(microseconds=1) if view.ttl else -(2**62)
                fresh = [pair is not None and int(pair[:19]) >= oldest for pair in by_field[offset]]
                for number, feature in enumerate(view.features, start=offset + 1):
                    cells = zip(fresh, by_field[number], strict=True)
                    columns[feature] = [_decoded(cell) if is_fresh else None for is_fresh, cell in cells]
                offset += 1 + len(view.features)
        return pa.table({feature: columns[feature] for view in views for feature in view.features})

    def _exchange(self, commands: Sequence[bytes]) -> list[Any]:
        """Send commands at once and read their replies."""
        pool = self._client.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_packed_command([b"".join(commands)])  # type: ignore[no-untyped-call]  # redis left these two untyped
            return [connection.read_response(disable_decoding=True) for _ in commands]
        except BaseException:
            # Replies that nobody read would be taken for those of the next command.
            connection.disconnect()  # type: ignore[no-untyped-call]
            raise
        finally:
            pool.release(connection)


def _by_keys(views: Sequence[OnlineView]) -> list[list[OnlineView]]:
    groups: dict[tuple[str, ...], list[OnlineView]] = {}
    for view in views:
        groups.setdefault(view.keys, []).append(view)
    return list(groups.values())


def _fields(view: OnlineView) -> list[bytes]:
    return [_field(view.name, feature) for feature in view.features]


def _field(view: str, feature: str) -> bytes:
    """Feast's name of a feature in a hash: Murmur3 of `<view>:<feature>`, four bytes, least first."""
    return struct.pack("<I", mmh3.hash(f"{view}:{feature}", signed=False))


def _bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def _entity_keys(view: OnlineView, rows: pa.Table, project: bytes) -> Iterator[bytes]:
    """Feast's key of every row, as its `serialize_entity_key` in version 3 writes it."""
    names = sorted(view.keys)
    head = [_BEGINNING.pack(len(names))]
    for name in names:
        head += [_BEGINNING.pack(_STRING), _BEGINNING.pack(len(name.encode())), name.encode()]
    parts = [_key_values(name, rows[name]) for name in names]
    start = b"".join(head)
    for values in zip(*parts, strict=True):
        yield start + b"".join(values) + project


def _key_values(name: str, column: pa.ChunkedArray) -> list[bytes]:
    if column.null_count:
        raise ConfigurationError(f"Entity key {name}: {column.null_count} of {len(column)} values are null.")
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        texts = [text.encode() for text in column.to_pylist()]
        return [_BEGINNING.pack(_STRING) + _BEGINNING.pack(len(text)) + text for text in texts]
    kind, form = (_INT32, "<IIi") if pa.types.is_int32(column.type) else (_INT64, "<IIq")
    if not pa.types.is_integer(column.type):
        raise ConfigurationError(f"Entity key {name}: expected text or an integer, found {column.type}.")
    return [struct.pack(form, kind, struct.calcsize(form) - 8, value) for value in column.to_pylist()]


def _microseconds(column: pa.ChunkedArray, missing: Any = None) -> Any:
    ticks = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64()).combine_chunks()
    if missing is not None:
        ticks = pc.if_else(pc.is_valid(ticks), ticks, pa.array(missing))
    return np.asarray(ticks)


def _timestamp(microseconds: int) -> bytes:
    """`google.protobuf.Timestamp`: seconds as field 1, nanoseconds as field 2, zeros left out."""
    seconds, rest = divmod(microseconds, 1_000_000)
    found = b"\x08" + _varint(seconds) if seconds else b""
    return found + b"\x10" + _varint(rest * 1000) if rest else found


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


_NUMBERS: dict[str, Callable[[Any], bytes]] = {
    "int32": lambda value: b"\x18" + _varint(value),
    "int64": lambda value: b"\x20" + _varint(value),
    "double": lambda value: b"\x29" + struct.pack("<d", value),
    "float": lambda value: b"\x35" + struct.pack("<f", value),
    "bool": lambda value: b"\x38" + (b"\x01" if value else b"\x00"),
}


def _encoded(name: str, column: pa.ChunkedArray) -> list[bytes]:
    """Each value as a serialized `feast.types.Value`; a null is the empty message."""
    kind = str(column.type)
    if kind in ("string", "large_string"):
        texts = (None if text is None else text.encode() for text in column.to_pylist())
        return [b"" if text is None else b"\x12" + _varint(len(text)) + text for text in texts]
    if kind not in _NUMBERS:
        raise ConfigurationError(
            f"Feature {name}: Feast's layout has no place for {kind}; cast it in the view's query."
        )
    encode = _NUMBERS[kind]
    return [b"" if value is None else encode(value) for value in column.to_pylist()]


def _decoded(cell: bytes | None) -> Any:
    """The value in a serialized `feast.types.Value` of the kinds that `_encoded` writes."""
    if not cell:
        return None
    tag = cell[0]
    if tag == 0x35:
        return struct.unpack_from("<f", cell, 1)[0]
    if tag == 0x29:
        return struct.unpack_from("<d", cell, 1)[0]
    if tag == 0x12:
        length, at = _read_varint(cell, 1)
        return cell[at : at + length].decode()
    value, _ = _read_varint(cell, 1)
    if tag == 0x38:
        return bool(value)
    return value - (1 << 64) if value >> 63 else value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
