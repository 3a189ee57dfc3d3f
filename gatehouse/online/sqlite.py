"""Feature rows in an SQLite file, in the tables that Feast's own client reads, ordered by (generation, event, created).

Feast has one table per view, with one row per key and feature. We add two tables: the order of the stored row of each
key and whether it is provisional, and the state of each view. Each batch changes all tables in one transaction, so a
writer that is killed leaves complete rows.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa

from gatehouse.errors import StoreError
from gatehouse.online.feast_layout import decoded, encoded, entity_keys, microseconds, split_key
from gatehouse.online.store import NEVER, OnlineView, State, key_table, read_present

BATCH = 4096
_KEYS_IN_A_QUERY = 500
_WAIT_SECONDS = 60.0
_BEGINNING = datetime(1970, 1, 1)  # Without a zone: Feast takes the UTC clock time as local time.
_PLACE = "WHERE project = ? AND view = ? AND entity_key = ?"
_TABLES = """
CREATE TABLE IF NOT EXISTS gatehouse_rows (project TEXT, view TEXT, entity_key BLOB, generation INTEGER, event INTEGER,
    created INTEGER, provisional INTEGER, PRIMARY KEY (project, view, entity_key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gatehouse_states (project TEXT, view TEXT, state TEXT, PRIMARY KEY (project, view));
"""
_FEAST_TABLE = """
CREATE TABLE IF NOT EXISTS {} (entity_key BLOB, feature_name TEXT, value BLOB, value_text TEXT, vector_value BLOB,
    event_ts timestamp, created_ts timestamp, PRIMARY KEY (entity_key, feature_name))
"""


class SqliteOnline:
    """Writes and reads the feature rows of one Feast project; an `OnlineStore`."""

    def __init__(self, path: Path, project: str) -> None:
        self._path = path
        self._project = project
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._opened() as connection:
            connection.executescript(_TABLES)

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
        changed, table = 0, self._table(view)
        for start in range(0, len(rows), BATCH):
            part = rows.slice(start, BATCH)
            keys = entity_keys(view.keys, part)
            event = microseconds(part[view.event], [NEVER] * len(part))
            created = microseconds(part[view.created], event) if view.created else event
            values = zip(*(encoded(feature, part[feature]) for feature in view.features), strict=True)
            with self._transaction(view) as connection:
                for key, happened, known_at, cells in zip(keys, event, created, values, strict=True):
                    place = (self._project, view.name, key)
                    query = f"SELECT generation, event, created FROM gatehouse_rows {_PLACE}"
                    stored = connection.execute(query, place).fetchone() or (-1, NEVER, NEVER)
                    times = (happened, known_at)
                    if stored >= (number, *times) or (max(stored[1:]) > as_of and stored[1:] >= times):
                        continue
                    if happened == NEVER:
                        changed += connection.execute(f"DELETE FROM gatehouse_rows {_PLACE}", place).rowcount
                        connection.execute(f"DELETE FROM {table} WHERE entity_key = ?", (key,))
                        continue
                    query = f"SELECT feature_name, value FROM {table} WHERE entity_key = ?"
                    before = dict(connection.execute(query, (key,)).fetchall()) if stored[1:] == times else None
                    changed += before != dict(zip(view.features, cells, strict=True))
                    row = (*place, number, *times, max(times) >= provisional)
                    connection.execute("INSERT OR REPLACE INTO gatehouse_rows VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                    seconds = [int((_BEGINNING + timedelta(microseconds=time)).timestamp()) for time in times]
                    connection.executemany(
                        f"INSERT OR REPLACE INTO {table} (entity_key, feature_name, value, event_ts, created_ts) "
                        "VALUES (?, ?, ?, ?, ?)",
                        [(key, *cell, *seconds) for cell in zip(view.features, cells, strict=True)],
                    )
        return changed

    def provisional(self, view: OnlineView) -> pa.Table:
        """As `OnlineStore.provisional`."""
        query = "SELECT entity_key FROM gatehouse_rows WHERE project = ? AND view = ? AND provisional"
        with self._opened() as connection:
            keys = connection.execute(query, (self._project, view.name)).fetchall()
        return key_table(view, [split_key(view.keys, key)[0] for (key,) in keys])

    def read(self, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
        """As `OnlineStore.read`."""
        return read_present(self._read, views, keys, now)

    def _read(self, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        with self._opened() as connection:
            for view in views:
                table, cells = self._table(view), dict[tuple[bytes, str], bytes]()
                row_keys = list(entity_keys(view.keys, keys))
                there = bool(connection.execute(f"PRAGMA table_info({table})").fetchone())
                for start in range(0, len(row_keys) if there else 0, _KEYS_IN_A_QUERY):
                    part = row_keys[start : start + _KEYS_IN_A_QUERY]
                    query = (
                        f"SELECT entity_key, feature_name, value FROM gatehouse_rows JOIN {table} USING (entity_key) "
                        f"WHERE project = ? AND view = ? AND event >= ? AND entity_key IN ({','.join('?' * len(part))})"
                    )
                    rows = connection.execute(query, [self._project, view.name, view.oldest(now), *part])
                    cells |= {(key, feature): value for key, feature, value in rows}
                for feature in view.features:
                    columns[feature] = decoded([cells.get((key, feature)) for key in row_keys])
        return pa.table({feature: columns[feature] for view in views for feature in view.features})

    def state(self, view: str) -> State:
        """As `OnlineStore.state`."""
        with self._opened() as connection:
            return self._state(connection, view)

    def swap(self, view: str, before: State, after: State) -> bool:
        """As `OnlineStore.swap`."""
        with self._transaction() as connection:
            if self._state(connection, view) != before:
                return False
            row = (self._project, view, after.dump())
            connection.execute("INSERT OR REPLACE INTO gatehouse_states VALUES (?, ?, ?)", row)
            return True

    def _state(self, connection: sqlite3.Connection, view: str) -> State:
        query = "SELECT state FROM gatehouse_states WHERE project = ? AND view = ?"
        row = connection.execute(query, (self._project, view)).fetchone()
        return State.load(row[0] if row else None)

    def sweep(self, view: OnlineView, generation: int, dropped: Sequence[str] = ()) -> None:
        """As `OnlineStore.sweep`."""
        table, older = self._table(view), (self._project, view.name, generation)
        chosen = "FROM gatehouse_rows WHERE project = ? AND view = ? AND generation < ?"
        with self._transaction(view) as connection:
            connection.execute(f"DELETE FROM {table} WHERE entity_key IN (SELECT entity_key {chosen})", older)
            connection.execute(f"DELETE {chosen}", older)
            connection.executemany(f"DELETE FROM {table} WHERE feature_name = ?", [(name,) for name in dropped])

    def _table(self, view: OnlineView) -> str:
        return '"' + f"{self._project}_{view.name}".replace('"', '""') + '"'

    @contextmanager
    def _transaction(self, view: OnlineView | None = None) -> Iterator[sqlite3.Connection]:
        """A connection with one transaction and no other writer; Feast's table of `view` exists in it."""
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                if view:
                    connection.execute(_FEAST_TABLE.format(self._table(view)))
                yield connection

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None)
            try:
                yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise StoreError(f"The online store, the SQLite file {self._path}, cannot be used: {error}.") from error
