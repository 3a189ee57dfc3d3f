"""Feature rows in Redis, in the layout that Feast's own clients read, ordered by (event, created).

Every entity key has a hash. The field with Feast's name for view and feature holds the value as a serialized
`feast.types.Value`; the field `_ts:<view>` holds the event time as a protobuf timestamp. We add the field `_at:<view>`
with the *order* of the row: generation, event time and created time, as text that sorts like the times. A row replaces
another only if its order is greater. Redis makes the comparison, so writers need no lock.

The hash `gatehouse:<project>` holds the state of each view. The set `gatehouse:<project>:<view>` holds the keys whose
row is provisional. A plain Feast client reads the same hashes; it gets expired values with their status.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from inspect import signature
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from redis.exceptions import RedisError

from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.online.feast_layout import (
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
from gatehouse.online.store import NEVER, OnlineView, State, read_known
from gatehouse.runtime.redaction import said

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["OnlineView", "RedisOnline", "connect_redis"]

BATCH = 4096
_SERVER = re.compile(r"(?P<host>[\w.-]+|[0-9a-fA-F:]+|/[\w./-]+):(?P<port>[0-9]{1,5})", re.ASCII)
_TEXTS = ("username", "password")
"""Settings that are never read as JSON: a password of digits is none of a number."""
_GENERATION = 8  # Number of digits of a generation.
_EVENT = slice(_GENERATION, _GENERATION + 19)  # Position of the event time in the order.
_SHIFT = 1 << 62  # Makes times before 1970 positive, so that their text sorts like the times.
_ROWS_IN_A_CALL = 32  # Rows per call of the script: calls cost half as much, and other clients wait for microseconds.
# Compares and sets in one step. KEYS: the hash of each row. ARGV: the number of arguments per row, then the arguments.
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
# Writes the table's row for a key. KEYS: the hash of the key, the set of provisional keys. ARGV: field of the order,
# as_of, the time from which rows are provisional, generation, order, key, then names and values of features. If the
# table has no row for the key, the order and the values are empty, and the stored row is removed.
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
# Removes a row of an earlier generation. KEYS: its hash. ARGV: field of the order, generation, the names to remove.
_SWEEP = """
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held or held >= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1], unpack(ARGV, 3))
return 1
"""
# Sets the state of a view if it is still what the caller read. KEYS: the hash of states. ARGV: view, before, after.
_SWAP = """
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""


def connect_redis(connection_string: str) -> "Redis":
    """A client for `host:port,name=value,...`, the form of Feast's settings. It connects at the first command.

    Raises:
        ConfigurationError: if the text has another form, or names a setting that the client does not know; it shows no
            part of it but the names of settings, as a password with a comma is cut there.
    """
    from redis import Redis

    server, *rest = connection_string.split(",")
    matched = _SERVER.fullmatch(server.strip())
    if not matched:
        raise ConfigurationError(
            "online_store.connection_string: expected host:port, followed by ,name=value if needed, found another "
            "form. It is not shown, as it may hold a password."
        )
    options: dict[str, Any] = {"socket_connect_timeout": 5, "socket_timeout": 30}
    known = signature(Redis).parameters
    for name, equals, value in (part.partition("=") for part in rest):
        if not equals or name.strip() not in known:
            raise ConfigurationError(
                "online_store.connection_string: expected ,name=value of Redis' client behind host:port, found another "
                "name, which may be the end of a password: this form has no way to write a comma in one. Choose a "
                "password without it, or correct the name."
            )
        try:
            options[name.strip()] = value if name.strip() in _TEXTS else json.loads(value)
        except json.JSONDecodeError:
            options[name.strip()] = value
    return Redis(host=matched["host"], port=int(matched["port"]), **options)


class RedisOnline:
    """Writes and reads the feature rows of one Feast project; an `OnlineStore`."""

    def __init__(self, client: "Redis", project: str) -> None:
        self._client = client
        self._project = project.encode()
        self._states = b"gatehouse:" + self._project

    def write(self, view: OnlineView, rows: pa.Table, generation: int | None = None, provisional: int = NEVER) -> int:
        """As `OnlineStore.write`."""
        number = self.state(view.name).last if generation is None else generation
        with self._explained():
            script = str(self._client.script_load(_WRITE)).encode()
            parts = (rows.slice(at, BATCH) for at in range(0, len(rows), BATCH))
            return sum(self._send(view, part, number, provisional, script) for part in parts)

    def _send(self, view: OnlineView, rows: pa.Table, generation: int, provisional: int, script: bytes) -> int:
        width = 4 + 2 * len(view.features)
        order_field = _bulk_string(_order_field(view))
        keys, bodies, provisional_keys = [], [], []
        for key, known, order, body in self._encoded(view, rows, generation):
            keys.append(_bulk_string(key + self._project))
            bodies.append(order_field + _bulk_string(order) + body)
            if known >= provisional:
                provisional_keys.append(_bulk_string(key))
        commands = []
        if provisional_keys:
            # The key is noted before the row is written: a noted key without a row does no harm.
            head = (
                b"*%d\r\n" % (2 + len(provisional_keys))
                + _bulk_string(b"SADD")
                + _bulk_string(self._provisional_set(view))
            )
            self._exchange([b"".join([head, *provisional_keys])])
        for first in range(0, len(keys), _ROWS_IN_A_CALL):
            named = keys[first : first + _ROWS_IN_A_CALL]
            head = b"*%d\r\n" % (4 + len(named) * (1 + width)) + _bulk_string(b"EVALSHA") + _bulk_string(script)
            count = _bulk_string(b"%d" % len(named))
            commands.append(
                b"".join([head, count, *named, _bulk_string(b"%d" % width), *bodies[first : first + _ROWS_IN_A_CALL]])
            )
        return sum(int(reply) for reply in self._exchange(commands))

    def _encoded(self, view: OnlineView, rows: pa.Table, generation: int) -> Iterator[tuple[bytes, int, bytes, bytes]]:
        """For every row: entity key, known time, order, and names and values in Redis' protocol."""
        event = microseconds(rows[view.event])
        created = microseconds(rows[view.created], event) if view.created else event
        values = [encoded(feature, rows[feature]) for feature in view.features]
        names = [_bulk_string(field(view.name, feature)) for feature in view.features]
        ts = _bulk_string(_time_field(view))
        for key, happened, known, *cells in zip(
            entity_keys(view.keys, rows), event.tolist(), created.tolist(), *values, strict=True
        ):
            order = b"%08d%019d%019d" % (generation, happened + _SHIFT, known + _SHIFT)
            body = b"".join(name + _bulk_string(cell) for name, cell in zip(names, cells, strict=True))
            yield key, max(happened, known), order, ts + _bulk_string(timestamp(happened)) + body

    def provisional(self, view: OnlineView) -> pa.Table:
        """As `OnlineStore.provisional`."""
        with self._explained():
            (found,) = self._exchange([_command(b"SMEMBERS", self._provisional_set(view))])
        return key_columns(view.keys, [bytes(key) for key in found])

    def settle(self, view: OnlineView, rows: pa.Table, generation: int, as_of: int, provisional: int) -> int:
        """As `OnlineStore.settle`."""
        there = rows[view.event].is_valid()
        empty = b"".join(_bulk_string(name) + _bulk_string(b"") for name in (_time_field(view), *_feature_fields(view)))
        settled = [(key, order, body) for key, _, order, body in self._encoded(view, rows.filter(there), generation)]
        settled += [(key, b"", empty) for key in entity_keys(view.keys, rows.filter(pc.invert(there)))]
        times = [b"%019d" % max(0, moment + _SHIFT) for moment in (as_of, provisional)]
        fixed = (self._provisional_set(view), _order_field(view), *times, b"%08d" % generation)
        with self._explained():
            script = str(self._client.script_load(_SETTLE)).encode()
            head = b"*%d\r\n" % (13 + 2 * len(view.features)) + b"".join(map(_bulk_string, (b"EVALSHA", script, b"2")))
            commands = [
                head + b"".join(map(_bulk_string, (key + self._project, *fixed, order, key))) + body
                for key, order, body in settled
            ]
            parts = (commands[at : at + BATCH] for at in range(0, len(commands), BATCH))
            return sum(int(changed) for part in parts for changed in self._exchange(part))

    def _provisional_set(self, view: OnlineView) -> bytes:
        return self._states + b":" + view.name.encode()

    def read(self, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
        """As `OnlineStore.read`."""
        return read_known(self._read, views, keys, now)

    def _read(self, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        with self._explained():
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
        """The cells of every key, by request. The commands of all requests are sent in one go."""
        found: list[list[list[Any]]] = [[] for _ in requests]
        for at in range(0, keys.num_rows, BATCH):
            part = keys if keys.num_rows <= BATCH else keys.slice(at, BATCH)
            commands = [
                request.start + _bulk_string(key + self._project) + request.end
                for request in requests
                for key in entity_keys(request.keys, part)
            ]
            replies = iter(self._exchange(commands))
            for cells in found:
                cells += islice(replies, part.num_rows)
        return found

    def state(self, view: str) -> State:
        """As `OnlineStore.state`."""
        with self._explained():
            return State.load(self._held(view))

    def swap(self, view: str, before: State, after: State) -> bool:
        """As `OnlineStore.swap`."""
        with self._explained():
            held = self._held(view)
            if State.load(held) != before:
                return False
            return bool(self._client.eval(_SWAP, 1, self._states, view, held or b"", after.dump()))

    def _held(self, view: str) -> bytes | None:
        found: Any = self._client.hget(self._states, view)
        return found.encode() if isinstance(found, str) else found

    def sweep(self, view: OnlineView, generation: int, dropped: Sequence[str] = ()) -> None:
        """As `OnlineStore.sweep`; it looks at every key of the entity."""
        names = [_time_field(view), *_feature_fields(view)]
        gone = [field(view.name, feature) for feature in dropped]
        start = key_start(view.keys)
        with self._explained():
            sweep = self._client.register_script(_SWEEP)
            found = self._client.scan_iter(_escaped(start) + b"*" + _escaped(self._project), count=BATCH)
            for key in found:
                if not ends_key(view.keys, key, self._project):
                    continue
                sweep(keys=[key], args=[_order_field(view), b"%08d" % generation, *names, *gone])
                if gone:
                    self._client.hdel(key, *gone)

    def _exchange(self, commands: Sequence[bytes]) -> list[Any]:
        """Send commands together and read one reply per command."""
        pool = self._client.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_packed_command([b"".join(commands)])  # type: ignore[no-untyped-call]  # redis left these two untyped
            return [connection.read_response(disable_decoding=True) for _ in commands]
        except BaseException:
            # The next command would take replies that are left in the connection for its own.
            connection.disconnect()  # type: ignore[no-untyped-call]
            raise
        finally:
            pool.release(connection)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except RedisError as error:
            options = self._client.connection_pool.connection_kwargs
            server = options.get("path") or f"{options.get('host')}:{options.get('port')}"
            words = said(error, bool(options.get("password")))
            raise StoreError(
                f"The online store, Redis at {server}, does not answer as it should: {words}. Does it run, and does "
                "online_store in feature_store.yaml name it?"
            ) from None


@dataclass(frozen=True)
class _Request:
    """A command that is sent for every key of an entity.

    Attributes:
        keys: Join keys of the entity.
        views: The views that it reads.
        start: Its bytes before the key.
        end: Its bytes after the key.
        width: Number of cells that it returns for a key.
    """

    keys: tuple[str, ...]
    views: tuple[OnlineView, ...]
    start: bytes
    end: bytes
    width: int


@lru_cache(maxsize=256)
def _requests(views: tuple[OnlineView, ...]) -> list[_Request]:
    """The commands that read these views: one command for all views with the same keys."""
    groups: dict[tuple[str, ...], list[OnlineView]] = {}
    for view in views:
        groups.setdefault(view.keys, []).append(view)
    requests = []
    for keys, joined in groups.items():
        names = [name for view in joined for name in (_order_field(view), *_feature_fields(view))]
        start = b"*%d\r\n" % (2 + len(names)) + _bulk_string(b"HMGET")
        requests.append(_Request(keys, tuple(joined), start, b"".join(map(_bulk_string, names)), len(names)))
    return requests


def _order_field(view: OnlineView) -> bytes:
    """The hash field with the order of a row; Feast does not know it."""
    return b"_at:" + view.name.encode()


def _time_field(view: OnlineView) -> bytes:
    """The hash field with the event time of a row, as Feast names it."""
    return b"_ts:" + view.name.encode()


def _feature_fields(view: OnlineView) -> list[bytes]:
    return [field(view.name, feature) for feature in view.features]


def _bulk_string(data: bytes) -> bytes:
    """A text in Redis' protocol."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def _command(*parts: bytes) -> bytes:
    """A command in Redis' protocol."""
    return b"*%d\r\n" % len(parts) + b"".join(map(_bulk_string, parts))


def _escaped(text: bytes) -> bytes:
    """A Redis pattern that matches only this text: special characters are escaped."""
    return b"".join(b"\\" + bytes([byte]) if byte in b"*?[]^\\" else bytes([byte]) for byte in text)
