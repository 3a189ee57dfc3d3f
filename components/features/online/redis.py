"""Feature rows in Redis, in the layout that Feast's own clients read, written in order of (event, created).

One hash a key of an entity: under Feast's name for view and feature the value as a serialized `feast.types.Value`,
under `_ts:<view>` the event time as a protobuf timestamp. We add `_at:<view>`: generation, event and created time as
text whose order is theirs. A row replaces another only if that is greater. The comparison is made in Redis, so writers
need no lock. How far a view is materialized stands in the hash `gatehouse:<project>`, the keys whose row is provisional
in the set `gatehouse:<project>:<view>`.

A plain Feast client reads the same hashes, and is given expired values with their status.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from redis.exceptions import RedisError

from gatehouse.components.features.online.feast_layout import (
    decoded,
    encoded,
    ends_key,
    entity_keys,
    field,
    key_columns,
    key_start,
    microseconds,
    timestamp,
)
from gatehouse.components.features.online.store import NEVER, OnlineView, State, read_known
from gatehouse.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["OnlineView", "RedisOnline", "connect_redis"]

BATCH = 4096
_GENERATION = 8  # Digits of it.
_EVENT = slice(_GENERATION, _GENERATION + 19)  # Where the event stands in the order.
_SHIFT = 1 << 62  # Makes times before 1970 positive, so that their text has the order of the times.
_TOGETHER = 32  # Rows in one call of the script: half the calls' cost, and others wait for microseconds only.
# Compares and sets in one step. ARGV is the number of arguments a row, then those of each row.
_WRITE = """
local width, changed = tonumber(ARGV[1]), 0
for row = 1, #KEYS do
  local first = 2 + (row - 1) * width
  local held = redis.call('HGET', KEYS[row], ARGV[first])
  if not held or held < ARGV[first + 1] then
    redis.call('HSET', KEYS[row], unpack(ARGV, first, first + width - 1))
    changed = changed + 1
  end
end
return changed
"""
# Makes a row the truth about its key. ARGV: field of the order, as_of, from when on rows are provisional, generation,
# order, key, then names and values; where there is no row, the order and the values are empty.
_SETTLE = """
local function known(order)
  local event, created = string.sub(order, 9, 27), string.sub(order, 28)
  if event < created then return created else return event end
end
local at, as_of, provisional, generation, order = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local held = redis.call('HGET', KEYS[1], at)
if held then
  local number = string.sub(held, 1, 8)
  if number > generation or number == generation and known(held) > as_of and held >= order then return 0 end
end
if order == '' or known(order) < provisional then redis.call('SREM', KEYS[2], ARGV[6]) end
local same, names = (held or '') == order, {at}
for place = 7, #ARGV, 2 do
  names[#names + 1] = ARGV[place]
  same = same and (order == '' or redis.call('HGET', KEYS[1], ARGV[place]) == ARGV[place + 1])
end
if same then return 0 end
if order == '' then redis.call('HDEL', KEYS[1], unpack(names))
else redis.call('HSET', KEYS[1], at, order, unpack(ARGV, 7)) end
return 1
"""
_SWEEP = """
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held or held >= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1], unpack(ARGV, 3))
return 1
"""
_SWAP = """
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""


def connect_redis(connection_string: str) -> "Redis":
    """A client for `host:port,name=value,...`, the form that Feast's settings have. It connects when it is used."""
    from redis import Redis

    server, *rest = connection_string.split(",")
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigurationError(
            "online_store.connection_string: expected host:port, with name=value behind commas where needed."
        )
    options: dict[str, Any] = {"socket_connect_timeout": 5, "socket_timeout": 30}
    for part in rest:
        name, _, value = part.partition("=")
        try:
            options[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            options[name.strip()] = value
    try:
        return Redis(host=host, port=int(port), **options)
    except TypeError as error:
        raise ConfigurationError(f"online_store.connection_string: {error}") from error


class RedisOnline:
    """Writes and reads the feature rows of one Feast project; an `OnlineStore`."""

    def __init__(self, client: "Redis", project: str) -> None:
        self._client = client
        self._project = project.encode()
        self._states = b"gatehouse:" + self._project

    def write(self, view: OnlineView, rows: pa.Table, generation: int | None = None, provisional: int = NEVER) -> int:
        """As `OnlineStore.write`."""
        number = self.state(view.name).last if generation is None else generation
        with self._reaching():
            script = str(self._client.script_load(_WRITE)).encode()
            parts = (rows.slice(at, BATCH) for at in range(0, len(rows), BATCH))
            return sum(self._send(view, part, number, provisional, script) for part in parts)

    def _send(self, view: OnlineView, rows: pa.Table, generation: int, provisional: int, script: bytes) -> int:
        width = 4 + 2 * len(view.features)
        at = _bulk(_at(view))
        keys, bodies, noted = [], [], []
        for key, known, order, body in self._encoded(view, rows, generation):
            keys.append(_bulk(key + self._project))
            bodies.append(at + _bulk(order) + body)
            if known >= provisional:
                noted.append(_bulk(key))
        commands = []
        if noted:
            # Before the rows: a key that is noted needlessly does no harm.
            head = b"*%d\r\n" % (2 + len(noted)) + _bulk(b"SADD") + _bulk(self._noted(view))
            self._exchange([b"".join([head, *noted])])
        for first in range(0, len(keys), _TOGETHER):
            named = keys[first : first + _TOGETHER]
            head = b"*%d\r\n" % (4 + len(named) * (1 + width)) + _bulk(b"EVALSHA") + _bulk(script)
            count = _bulk(b"%d" % len(named))
            commands.append(b"".join([head, count, *named, _bulk(b"%d" % width), *bodies[first : first + _TOGETHER]]))
        return sum(int(reply) for reply in self._exchange(commands))

    def _encoded(self, view: OnlineView, rows: pa.Table, generation: int) -> Iterator[tuple[bytes, int, bytes, bytes]]:
        """Of every row the entity key, when it was known, its order, and names and values as Redis reads them."""
        event = microseconds(rows[view.event])
        created = microseconds(rows[view.created], event) if view.created else event
        values = [encoded(feature, rows[feature]) for feature in view.features]
        names = [_bulk(field(view.name, feature)) for feature in view.features]
        ts = _bulk(_ts(view))
        for key, happened, known, *cells in zip(
            entity_keys(view.keys, rows), event.tolist(), created.tolist(), *values, strict=True
        ):
            order = b"%08d%019d%019d" % (generation, happened + _SHIFT, known + _SHIFT)
            body = b"".join(name + _bulk(cell) for name, cell in zip(names, cells, strict=True))
            yield key, max(happened, known), order, ts + _bulk(timestamp(happened)) + body

    def provisional(self, view: OnlineView) -> pa.Table:
        """As `OnlineStore.provisional`."""
        with self._reaching():
            (found,) = self._exchange([_command(b"SMEMBERS", self._noted(view))])
        return key_columns(view.keys, [bytes(key) for key in found])

    def settle(self, view: OnlineView, rows: pa.Table, generation: int, as_of: int, provisional: int) -> int:
        """As `OnlineStore.settle`."""
        there = rows[view.event].is_valid()
        empty = b"".join(_bulk(name) + _bulk(b"") for name in (_ts(view), *_fields(view)))
        told = [(key, order, body) for key, _, order, body in self._encoded(view, rows.filter(there), generation)]
        told += [(key, b"", empty) for key in entity_keys(view.keys, rows.filter(pc.invert(there)))]
        times = [b"%019d" % max(0, moment + _SHIFT) for moment in (as_of, provisional)]
        fixed = (self._noted(view), _at(view), *times, b"%08d" % generation)
        with self._reaching():
            script = str(self._client.script_load(_SETTLE)).encode()
            head = b"*%d\r\n" % (13 + 2 * len(view.features)) + b"".join(map(_bulk, (b"EVALSHA", script, b"2")))
            commands = [
                head + b"".join(map(_bulk, (key + self._project, *fixed, order, key))) + body
                for key, order, body in told
            ]
            parts = (commands[at : at + BATCH] for at in range(0, len(commands), BATCH))
            return sum(int(changed) for part in parts for changed in self._exchange(part))

    def _noted(self, view: OnlineView) -> bytes:
        return self._states + b":" + view.name.encode()

    def read(self, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
        """As `OnlineStore.read`."""
        return read_known(self._read, views, keys, now)

    def _read(self, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        with self._reaching():
            requests = _requests(tuple(views))
            for request, found in zip(requests, self._look_up(requests, keys), strict=True):
                by_name = list(zip(*found, strict=True)) or [()] * request.width
                place = 0
                for view in request.views:
                    oldest = b"%019d" % max(0, view.oldest(now) + _SHIFT)
                    fresh = [order is not None and order[_EVENT] >= oldest for order in by_name[place]]
                    for number, feature in enumerate(view.features, start=place + 1):
                        cells: Sequence[bytes | None] = by_name[number]
                        if not all(fresh):
                            cells = [cell if is_fresh else None for is_fresh, cell in zip(fresh, cells, strict=True)]
                        columns[feature] = decoded(cells)
                    place += 1 + len(view.features)
        names = [feature for view in views for feature in view.features]
        return pa.Table.from_arrays([columns[name] for name in names], names=names)

    def _look_up(self, requests: Sequence["_Request"], keys: pa.Table) -> list[list[list[Any]]]:
        """The cells of every key, by request; all requests go together."""
        found: list[list[list[Any]]] = [[] for _ in requests]
        for at in range(0, keys.num_rows, BATCH):
            part = keys if keys.num_rows <= BATCH else keys.slice(at, BATCH)
            commands = [
                request.start + _bulk(key + self._project) + request.end
                for request in requests
                for key in entity_keys(request.keys, part)
            ]
            replies = iter(self._exchange(commands))
            for cells in found:
                cells += islice(replies, part.num_rows)
        return found

    def state(self, view: str) -> State:
        """As `OnlineStore.state`."""
        with self._reaching():
            return State.load(self._held(view))

    def swap(self, view: str, before: State, after: State) -> bool:
        """As `OnlineStore.swap`."""
        with self._reaching():
            held = self._held(view)
            if State.load(held) != before:
                return False
            return bool(self._client.eval(_SWAP, 1, self._states, view, held or b"", after.dump()))

    def _held(self, view: str) -> bytes | None:
        found: Any = self._client.hget(self._states, view)
        return found.encode() if isinstance(found, str) else found

    def sweep(self, view: OnlineView, generation: int, dropped: Sequence[str] = ()) -> None:
        """As `OnlineStore.sweep`; it looks at every key of the entity."""
        names = [_ts(view), *_fields(view)]
        gone = [field(view.name, feature) for feature in dropped]
        start = key_start(view.keys)
        with self._reaching():
            sweep = self._client.register_script(_SWEEP)
            found = self._client.scan_iter(_literal(start) + b"*" + _literal(self._project), count=BATCH)
            for key in found:
                if not ends_key(view.keys, key, self._project):
                    continue
                sweep(keys=[key], args=[_at(view), b"%08d" % generation, *names, *gone])
                if gone:
                    self._client.hdel(key, *gone)

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

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except RedisError as error:
            options = self._client.connection_pool.connection_kwargs
            server = options.get("path") or f"{options.get('host')}:{options.get('port')}"
            raise StoreError(
                f"The online store, Redis at {server}, does not answer as it should: {type(error).__name__}: "
                f"{str(error).rstrip('.')}. Does it run, and does online_store in feature_store.yaml name it?"
            ) from error


@dataclass(frozen=True)
class _Request:
    """One command for every key of an entity: what it is made of before and after the key, and how many cells come."""

    keys: tuple[str, ...]
    views: tuple[OnlineView, ...]
    start: bytes
    end: bytes
    width: int


@lru_cache(maxsize=256)
def _requests(views: tuple[OnlineView, ...]) -> list[_Request]:
    """The commands that read these views: views with the same keys are read by one."""
    groups: dict[tuple[str, ...], list[OnlineView]] = {}
    for view in views:
        groups.setdefault(view.keys, []).append(view)
    requests = []
    for keys, joined in groups.items():
        names = [name for view in joined for name in (_at(view), *_fields(view))]
        start = b"*%d\r\n" % (2 + len(names)) + _bulk(b"HMGET")
        requests.append(_Request(keys, tuple(joined), start, b"".join(map(_bulk, names)), len(names)))
    return requests


def _at(view: OnlineView) -> bytes:
    return b"_at:" + view.name.encode()


def _ts(view: OnlineView) -> bytes:
    return b"_ts:" + view.name.encode()


def _fields(view: OnlineView) -> list[bytes]:
    return [field(view.name, feature) for feature in view.features]


def _bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def _command(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(map(_bulk, parts))


def _literal(text: bytes) -> bytes:
    """`text` for a pattern of Redis in which nothing stands for anything else."""
    return b"".join(b"\\" + bytes([byte]) if byte in b"*?[]^\\" else bytes([byte]) for byte in text)
