"""Feature rows in Redis, in the layout that Feast's own clients read, ordered by (generation, event, created).

Every entity key has a hash. The field with Feast's name of view and feature holds the value as a serialized
`feast.types.Value`; the field `_ts:<view>` holds the event time as a protobuf timestamp. We add the field `_at:<view>`
with the *order* of the row: generation, event time and created time, as text that sorts like the numbers. Redis itself
compares the orders, so writers need no lock.

The hash `gatehouse:<project>` holds the state of each view. The set `gatehouse:<project>:<view>` holds the keys whose
row is provisional.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from redis.exceptions import RedisError

from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.online.feast_layout import (
    decoded,
    encoded,
    entity_keys,
    field,
    key_start,
    microseconds,
    split_key,
    timestamp,
)
from gatehouse.online.store import NEVER, OnlineView, State, key_table, read_present
from gatehouse.runtime.redaction import error_text

if TYPE_CHECKING:
    from redis import Redis

BATCH = 4096
_SERVER = re.compile(r"(?P<host>[\w.-]+|[0-9a-fA-F:]+|/[\w./-]+):(?P<port>[0-9]{1,5})", re.ASCII)
_TEXTS = ("username", "password")
"""Settings that are never read as JSON: a password may consist of digits."""
_EVENT = slice(8, 27)  # The event time in the order, behind eight digits of the generation.
_SHIFT = 1 << 62  # Makes times before 1970 positive, so that their text sorts like the times.
_ROWS_IN_A_CALL = 32  # Rows per call of the script; other clients wait while it runs.
# Writes rows. KEYS: the hash of each row, then the set of provisional keys. ARGV: as_of, the number of arguments per
# row, and the arguments of each row: its key, whether it is provisional, the field of the order, the order, and names
# and values. The order of a row to remove is its generation alone.
_WRITE = """
local as_of, width, changed = ARGV[1], tonumber(ARGV[2]), 0
local add, remove = {}, {}
for row = 1, #KEYS - 1 do
  local first = 3 + (row - 1) * width
  local order = ARGV[first + 3]
  local stored = redis.call('HGET', KEYS[row], ARGV[first + 2])
  local stays = stored and stored >= order
  if stored and not stays then
    local event, created = string.sub(stored, 9, 27), string.sub(stored, 28)
    stays = (event > as_of or created > as_of) and string.sub(stored, 9) >= string.sub(order, 9)
  end
  if not stays then
    local marks = ARGV[first + 1] == '1' and add or remove
    marks[#marks + 1] = ARGV[first]
    if #order > 8 then
      local same = stored and string.sub(stored, 9) == string.sub(order, 9)
      for place = first + 4, first + width - 1, 2 do
        same = same and redis.call('HGET', KEYS[row], ARGV[place]) == ARGV[place + 1]
      end
      redis.call('HSET', KEYS[row], unpack(ARGV, first + 2, first + width - 1))
      changed = changed + (same and 0 or 1)
    elseif stored then
      local names = {}
      for place = first + 2, first + width - 1, 2 do names[#names + 1] = ARGV[place] end
      redis.call('HDEL', KEYS[row], unpack(names))
      changed = changed + 1
    end
  end
end
if #add > 0 then redis.call('SADD', KEYS[#KEYS], unpack(add)) end
if #remove > 0 then redis.call('SREM', KEYS[#KEYS], unpack(remove)) end
return changed
"""
# Removes a row of an earlier generation. KEYS: its hash. ARGV: field of the order, generation, the names to remove.
_SWEEP = """
local stored = redis.call('HGET', KEYS[1], ARGV[1])
if not stored or stored >= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1], unpack(ARGV, 3))
"""
# Sets the state of a view if it is still what the caller read. KEYS: the hash of states. ARGV: view, before, after.
_SWAP = """
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""


def connect_redis(connection_string: str) -> "Redis":
    """A client for `host:port,name=value,...`, the form of Feast's settings. It connects at the first command.

    Raises ConfigurationError if the text has another form or names an unknown setting. The message shows no part of the
    text, as a password may contain a comma.
    """
    from redis import Redis

    server, *rest = connection_string.split(",")
    matched = _SERVER.fullmatch(server.strip())
    settings = [part.partition("=")[::2] for part in rest]
    if not matched or any(name.strip() not in signature(Redis).parameters for name, _ in settings):
        raise ConfigurationError(
            "online_store.connection_string: expected host:port, followed by ,name=value with settings of the Redis "
            "client and no comma in a value, found another form. It is not shown, as it may hold a password."
        )
    options: dict[str, Any] = {"socket_connect_timeout": 5, "socket_timeout": 30}
    for name, value in ((name.strip(), value) for name, value in settings):
        try:
            options[name] = value if name in _TEXTS else json.loads(value)
        except json.JSONDecodeError:
            options[name] = value
    return Redis(host=matched["host"], port=int(matched["port"]), **options)


class RedisOnline:
    """Writes and reads the feature rows of one Feast project; an `OnlineStore`."""

    def __init__(self, client: "Redis", project: str) -> None:
        self._client = client
        self._project = project.encode()
        self._states = b"gatehouse:" + self._project

    def write(
        self,
        view: OnlineView,
        rows: pa.Table,
        generation: int | None = None,
        as_of: int = NEVER,
        provisional: int = NEVER,
    ) -> int:
        """As `OnlineStore.write`."""
        number = self.state(view.name).last if generation is None else generation
        changed = 0
        with self._explained():
            script = self._client.script_load(_WRITE)
            for start in range(0, len(rows), BATCH):
                with self._client.pipeline(transaction=False) as pipe:
                    prepared = list(self._arguments(view, rows.slice(start, BATCH), number, provisional))
                    for first in range(0, len(prepared), _ROWS_IN_A_CALL):
                        part = prepared[first : first + _ROWS_IN_A_CALL]
                        keys = [arguments[0] + self._project for arguments in part] + [self._provisional(view)]
                        flat = [argument for arguments in part for argument in arguments]
                        pipe.evalsha(script, len(keys), *keys, _sortable(as_of), len(part[0]), *flat)
                    changed += sum(map(int, pipe.execute()))
        return changed

    def _arguments(
        self, view: OnlineView, rows: pa.Table, generation: int, provisional: int
    ) -> Iterator[tuple[bytes, ...]]:
        """The arguments of `_WRITE` for every row."""
        keys = entity_keys(view.keys, rows)
        event = microseconds(rows[view.event], [NEVER] * len(rows))
        created = microseconds(rows[view.created], event) if view.created else event
        values = [encoded(feature, rows[feature]) for feature in view.features]
        names = _feature_fields(view)
        for key, happened, known_at, *cells in zip(keys, event, created, *values, strict=True):
            order = b"%08d" % generation
            order += b"" if happened == NEVER else _sortable(happened) + _sortable(known_at)
            mark = b"1" if happened != NEVER and max(happened, known_at) >= provisional else b"0"
            time = b"" if happened == NEVER else timestamp(happened)
            pairs = (part for pair in zip(names, cells, strict=True) for part in pair)
            yield (key, mark, _order_field(view), order, _time_field(view), time, *pairs)

    def provisional(self, view: OnlineView) -> pa.Table:
        """As `OnlineStore.provisional`."""
        with self._explained():
            members: Any = self._client.smembers(self._provisional(view))
        return key_table(view, [split_key(view.keys, key)[0] for key in members])

    def _provisional(self, view: OnlineView) -> bytes:
        return self._states + b":" + view.name.encode()

    def read(self, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
        """As `OnlineStore.read`."""
        return read_present(self._read, views, keys, now)

    def _read(self, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
        """The views with the same keys are read with one command per key, and all commands go in one round trip."""
        groups: dict[tuple[str, ...], list[OnlineView]] = {}
        for view in views:
            groups.setdefault(view.keys, []).append(view)
        with self._explained(), self._client.pipeline(transaction=False) as pipe:
            for names, group in groups.items():
                fields = [name for view in group for name in (_order_field(view), *_feature_fields(view))]
                for key in entity_keys(names, keys):
                    pipe.hmget(key + self._project, fields)
            replies = iter(pipe.execute())
        columns: dict[str, pa.Array] = {}
        for group in groups.values():
            cells = iter(zip(*(next(replies) for _ in range(keys.num_rows)), strict=True))
            for view in group:
                oldest = _sortable(view.oldest(now))
                fresh = [order is not None and order[_EVENT] >= oldest for order in next(cells, ())]
                for feature in view.features:
                    columns[feature] = decoded(
                        [cell if is_fresh else None for is_fresh, cell in zip(fresh, next(cells, ()), strict=True)]
                    )
        return pa.table({feature: columns[feature] for view in views for feature in view.features})

    def state(self, view: str) -> State:
        """As `OnlineStore.state`."""
        with self._explained():
            return State.load(self._client.hget(self._states, view))

    def swap(self, view: str, before: State, after: State) -> bool:
        """As `OnlineStore.swap`."""
        with self._explained():
            stored: Any = self._client.hget(self._states, view)
            if State.load(stored) != before:
                return False
            return bool(self._client.eval(_SWAP, 1, self._states, view, stored or b"", after.dump()))

    def sweep(self, view: OnlineView, generation: int, dropped: Sequence[str] = ()) -> None:
        """As `OnlineStore.sweep`; it looks at every key of the entity."""
        names = [_time_field(view), *_feature_fields(view)]
        gone = [field(view.name, feature) for feature in dropped]
        special = re.compile(rb"[*?\[\]^\\]")
        pattern = b"*".join(special.sub(rb"\\\g<0>", text) for text in (key_start(view.keys), self._project))
        with self._explained():
            sweep = self._client.register_script(_SWEEP)
            for key in self._client.scan_iter(pattern, count=BATCH):
                # The name of another project may end with the name of this one.
                if split_key(view.keys, key)[1] == self._project:
                    sweep(keys=[key], args=[_order_field(view), b"%08d" % generation, *names, *gone])
                    if gone:
                        self._client.hdel(key, *gone)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except RedisError as error:
            options = self._client.connection_pool.connection_kwargs
            server = options.get("path") or f"{options.get('host')}:{options.get('port')}"
            raise StoreError(
                f"The online store, Redis at {server}, failed: {error_text(error)}. "
                "Check the server, and online_store in feature_store.yaml."
            ) from None


def _order_field(view: OnlineView) -> bytes:
    """The hash field with the order of a row; Feast does not know it."""
    return b"_at:" + view.name.encode()


def _time_field(view: OnlineView) -> bytes:
    """The hash field with the event time of a row, as Feast names it."""
    return b"_ts:" + view.name.encode()


def _feature_fields(view: OnlineView) -> list[bytes]:
    return [field(view.name, feature) for feature in view.features]


def _sortable(moment: int) -> bytes:
    """Microseconds since 1970 as text that sorts like the times."""
    return b"%019d" % max(0, moment + _SHIFT)
