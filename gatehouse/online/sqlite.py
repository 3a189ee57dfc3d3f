"""Feature rows in an SQLite file, in the tables that Feast's own client reads, ordered by (event, created).

Feast has one table per view, with one row per key and feature. We add three tables: the times of the stored row of
each key, which decide whether another row replaces it; the keys whose row is provisional; and the state of each view.
Each batch changes all tables in one transaction, so a writer that is killed leaves complete rows.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import StoreError
from gatehouse.online.feast_layout import decoded, encoded, entity_keys, key_columns, microseconds
from gatehouse.online.store import NEVER, OnlineView, State, read_known

BATCH = 4096
_ASKED = 500  # Keys per query.
_WAIT_SECONDS = 60.0
_BEGINNING = datetime(1970, 1, 1)  # Without a zone, as in Feast: see _seconds.
_HOLD = """
INSERT INTO gatehouse_held (project, view, entity_key, generation, event, created) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET generation = excluded.generation, event = excluded.event, created = excluded.created
WHERE (excluded.generation, excluded.event, excluded.created) > (generation, event, created)
"""
_PLACE = "WHERE project = ? AND view = ? AND entity_key = ?"
_OLDER = "SELECT entity_key FROM gatehouse_held WHERE project = ? AND view = ? AND generation < ?"


@dataclass(frozen=True)
class _Row:
    """A row to write.

    Attributes:
        key: The entity key as Feast serializes it.
        event: The event time, in microseconds since 1970.
        created: The created time, in microseconds since 1970.
        values: Serialized value by feature.
        texts: The value by feature, for text features.
    """

    key: bytes
    event: int
    created: int
    values: dict[str, bytes]
    texts: dict[str, str]

    @property
    def known(self) -> int:
        return max(self.event, self.created)


class SqliteOnline:
    """Writes and reads the feature rows of one Feast project; an `OnlineStore`."""

    def __init__(self, path: Path, project: str) -> None:
        self._path = path
        self._project = project
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._transaction() as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS gatehouse_held (project TEXT, view TEXT, entity_key BLOB, "
                "generation INTEGER, event INTEGER, created INTEGER, PRIMARY KEY (project, view, entity_key)) "
                "WITHOUT ROWID"
            )
            connection.execute(
                "CREATE TABLE IF NOT EXISTS gatehouse_provisional (project TEXT, view TEXT, entity_key BLOB, "
                "PRIMARY KEY (project, view, entity_key)) WITHOUT ROWID"
            )
            connection.execute(
                "CREATE TABLE IF NOT EXISTS gatehouse_states (project TEXT, view TEXT, state TEXT, "
                "PRIMARY KEY (project, view))"
            )

    def write(self, view: OnlineView, rows: pa.Table, generation: int | None = None, provisional: int = NEVER) -> int:
        """As `OnlineStore.write`."""
        number = self.state(view.name).last if generation is None else generation
        changed = 0
        for at in range(0, len(rows), BATCH):
            with self._transaction() as connection:
                _make_table(connection, self._table(view))
                for row in _rows(view, rows.slice(at, BATCH)):
                    times = (number, row.event, row.created)
                    if connection.execute(_HOLD, (self._project, view.name, row.key, *times)).rowcount:
                        changed += 1
                        self._put(connection, view, row)
                        if row.known >= provisional:
                            note = (self._project, view.name, row.key)
                            connection.execute("INSERT OR IGNORE INTO gatehouse_provisional VALUES (?, ?, ?)", note)
        return changed

    def provisional(self, view: OnlineView) -> pa.Table:
        """As `OnlineStore.provisional`."""
        with self._reading() as connection:
            query = "SELECT entity_key FROM gatehouse_provisional WHERE project = ? AND view = ?"
            found = connection.execute(query, (self._project, view.name)).fetchall()
        return key_columns(view.keys, [key for (key,) in found])

    def settle(self, view: OnlineView, rows: pa.Table, generation: int, as_of: int, provisional: int) -> int:
        """As `OnlineStore.settle`."""
        there = rows[view.event].is_valid()
        settled: list[_Row | bytes] = [*_rows(view, rows.filter(there))]
        gone = entity_keys(view.keys, rows.filter(pc.invert(there)))
        changed = 0
        with self._transaction() as connection:
            _make_table(connection, self._table(view))
            for row in (*settled, *gone):
                changed += self._settle(connection, view, row, generation, as_of, provisional)
        return changed

    def _settle(
        self,
        connection: sqlite3.Connection,
        view: OnlineView,
        settled: "_Row | bytes",
        generation: int,
        as_of: int,
        provisional: int,
    ) -> bool:
        """Settle one key, with its row, or the key alone if the table has no row. Returns whether it changed."""
        row, key = (settled, settled.key) if isinstance(settled, _Row) else (None, settled)
        place = (self._project, view.name, key)
        found = connection.execute(f"SELECT generation, event, created FROM gatehouse_held {_PLACE}", place).fetchone()
        if found is not None:
            number, *times = found
            pushed_later = max(times) > as_of and (row is None or times >= [row.event, row.created])
            if number > generation or (number == generation and pushed_later):
                return False
        if row is None or row.known < provisional:
            connection.execute(f"DELETE FROM gatehouse_provisional {_PLACE}", place)
        query = f"SELECT feature_name, value FROM {self._table(view)} WHERE entity_key = ?"
        before = dict(connection.execute(query, (key,)).fetchall())
        if row is None:
            connection.execute(f"DELETE FROM gatehouse_held {_PLACE}", place)
            connection.execute(f"DELETE FROM {self._table(view)} WHERE entity_key = ?", (key,))
            return found is not None
        held = (generation, row.event, row.created)
        if found == held and before == row.values:
            return False
        connection.execute("INSERT OR REPLACE INTO gatehouse_held VALUES (?, ?, ?, ?, ?, ?)", (*place, *held))
        self._put(connection, view, row)
        return True

    def _put(self, connection: sqlite3.Connection, view: OnlineView, row: "_Row") -> None:
        times = (_seconds(row.event), _seconds(row.created))
        connection.executemany(
            f"INSERT OR REPLACE INTO {self._table(view)} (entity_key, feature_name, value, value_text, event_ts, "
            "created_ts) VALUES (?, ?, ?, ?, ?, ?)",
            [(row.key, name, value, row.texts.get(name), *times) for name, value in row.values.items()],
        )

    def read(self, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
        """As `OnlineStore.read`."""
        return read_known(self._read, views, keys, now)

    def _read(self, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        with self._reading() as connection:
            for view in views:
                found = self._fresh(connection, view, keys, now)
                for feature in view.features:
                    columns[feature] = decoded([row.get(feature) for row in found])
        return pa.table({feature: columns[feature] for view in views for feature in view.features})

    def _fresh(
        self, connection: sqlite3.Connection, view: OnlineView, keys: pa.Table, now: datetime
    ) -> list[dict[str, bytes]]:
        table = self._table(view)
        asked = list(entity_keys(view.keys, keys))
        rows: dict[bytes, dict[str, bytes]] = {}
        if _exists(connection, table):
            for at in range(0, len(asked), _ASKED):
                part = asked[at : at + _ASKED]
                found = connection.execute(
                    f"SELECT entity_key, feature_name, value FROM gatehouse_held JOIN {table} USING (entity_key) "
                    f"WHERE project = ? AND view = ? AND event >= ? AND entity_key IN ({','.join('?' * len(part))})",
                    [self._project, view.name, view.oldest(now), *part],
                )
                for key, feature, value in found:
                    rows.setdefault(key, {})[feature] = value
        return [rows.get(key, {}) for key in asked]

    def state(self, view: str) -> State:
        """As `OnlineStore.state`."""
        with self._reading() as connection:
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
        found = connection.execute(query, (self._project, view)).fetchone()
        return State.load(found[0] if found else None)

    def sweep(self, view: OnlineView, generation: int, dropped: Sequence[str] = ()) -> None:
        """As `OnlineStore.sweep`."""
        table, older = self._table(view), (self._project, view.name, generation)
        with self._transaction() as connection:
            _make_table(connection, table)
            connection.execute(f"DELETE FROM {table} WHERE entity_key IN ({_OLDER})", older)
            connection.execute("DELETE FROM gatehouse_held WHERE project = ? AND view = ? AND generation < ?", older)
            connection.executemany(f"DELETE FROM {table} WHERE feature_name = ?", [(name,) for name in dropped])

    def _table(self, view: OnlineView) -> str:
        return '"' + f"{self._project}_{view.name}".replace('"', '""') + '"'

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection with one transaction: no other writer after its first statement, and all changes or none."""
        with self._reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None)
            try:
                yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise StoreError(f"The online store, the SQLite file {self._path}, cannot be used: {error}.") from error


def _rows(view: OnlineView, rows: pa.Table) -> Iterator[_Row]:
    event = microseconds(rows[view.event])
    created = microseconds(rows[view.created], event) if view.created else event
    values = zip(*(encoded(feature, rows[feature]) for feature in view.features), strict=True)
    texts = {name: rows[name].to_pylist() for name in view.features if pa.types.is_string(rows.schema.field(name).type)}
    for number, (key, happened, known, cells) in enumerate(
        zip(entity_keys(view.keys, rows), event.tolist(), created.tolist(), values, strict=True)
    ):
        said = {name: column[number] for name, column in texts.items() if column[number] is not None}
        yield _Row(key, happened, known, dict(zip(view.features, cells, strict=True)), said)


def _make_table(connection: sqlite3.Connection, table: str) -> None:
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {table} (entity_key BLOB, feature_name TEXT, value BLOB, value_text TEXT, "
        "vector_value BLOB, event_ts timestamp, created_ts timestamp, PRIMARY KEY (entity_key, feature_name))"
    )


def _exists(connection: sqlite3.Connection, table: str) -> bool:
    return bool(connection.execute(f"PRAGMA table_info({table})").fetchone())


def _seconds(moment: int) -> int:
    """Microseconds since 1970 as Feast writes a time: whole seconds, with the UTC clock time taken as local time."""
    return int((_BEGINNING + timedelta(microseconds=moment)).timestamp())
