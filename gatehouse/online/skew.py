"""Training-serving skew of an online store: reads back a sample and compares it with the offline values.

Both sides are read at the same time. Equal nulls prove little, so the sample has keys with fresh values for every view,
and only comparisons with a value on either side count. The sample also has cases that often go wrong: the entity rows
decided last, keys whose newest row was corrected, keys that had a late row, and keys whose newest row is expired.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gatehouse.features.computing.labels import entity_rows
from gatehouse.features.database import connect, open_tables, quoted, set_time
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.point_in_time.asof_join import asof_join
from gatehouse.online.materialization import open_rows
from gatehouse.online.store import OnlineStore, OnlineView, epoch_us, offline_join

SAMPLE = 200
FRESH, RECENT, CORRECTED, LATE, EXPIRED = "fresh", "recent", "corrected", "late", "expired"
_EXAMPLES = 3


@dataclass(frozen=True)
class Compared:
    """The comparison of one feature for one kind of keys.

    Attributes:
        view: The view.
        feature: The feature.
        kind: `fresh`, `recent`, `corrected`, `late` or `expired`.
        cells: Number of keys compared.
        values: Number of keys with a value online or offline.
        differing: Number of keys whose values differ.
        examples: Key, online value and offline value, as text, of the first keys that differ.
    """

    view: str
    feature: str
    kind: str
    cells: int
    values: int
    differing: int
    examples: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Skew:
    """All comparisons of a sample; `left_out` is the number of keys that were excluded."""

    compared: tuple[Compared, ...]
    left_out: int = 0

    @property
    def cells(self) -> int:
        """Number of comparisons, including null with null."""
        return sum(one.cells for one in self.compared)

    @property
    def values(self) -> int:
        """Number of comparisons with a value on either side."""
        return sum(one.values for one in self.compared)

    @property
    def unseen(self) -> tuple[str, ...]:
        """Views without any compared value."""
        views = dict.fromkeys(one.view for one in self.compared)
        return tuple(view for view in views if not any(one.values for one in self.compared if one.view == view))

    def why_unseen(self, view: OnlineView) -> str:
        """Why no value of such a view was compared."""
        keys = {one.kind: one.cells for one in self.compared if one.view == view.name}
        if keys.get(FRESH):
            return "its fresh rows have no values"
        if keys.get(EXPIRED):
            return f"all its rows are expired, older than its ttl of {view.ttl}"
        return "it has no rows that are known"

    @property
    def differing(self) -> dict[str, int]:
        """Number of differing values by feature; only features that have any."""
        found: dict[str, int] = {}
        for one in self.compared:
            if one.differing:
                found[one.feature] = found.get(one.feature, 0) + one.differing
        return found

    @property
    def share(self) -> float:
        """Share of compared values that differ; 1 where none was compared, as nothing shows that they are equal."""
        return sum(self.differing.values()) / self.values if self.values else 1.0


def decided_last(repository: Repository, tables: Mapping[str, Sequence[Path]], as_of: datetime) -> pa.Table:
    """The entity keys of the rows decided last before `as_of`, at most `SAMPLE` of them.

    Args:
        repository: The definitions.
        tables: Raw Parquet files by table.
        as_of: Only rows whose label is known at this time.

    Raises:
        ConfigurationError: if the label's query does not run.
    """
    with connect() as connection:
        open_tables(connection, tables)
        set_time(connection, "as_of", as_of)
        rows, _ = entity_rows(connection, repository)
    return rows.select(list(repository.entity_keys)).slice(max(0, rows.num_rows - SAMPLE))


def measure_skew(
    store: OnlineStore,
    views: Sequence[OnlineView],
    tables: Mapping[str, Sequence[Path]],
    recent: pa.Table,
    as_of: datetime,
    since: Mapping[str, int | None],
    pushed: Collection[str] = (),
) -> Skew:
    """Read a sample online, join the same keys offline at `as_of`, and compare.

    Args:
        store: The online store, materialized up to `as_of`.
        views: The views that are served, with the features that are served.
        tables: Parquet files by view.
        recent: Entity keys of the rows decided last.
        as_of: The time of both reads.
        since: The watermark of every view before this materialization; later rows about an earlier event are preferred.
        pushed: Views whose tables are pushed. Keys with rows that become known after `as_of` are excluded for them, as
            the pusher serves such rows once they are known.
    """
    compared: list[Compared] = []
    left_out = 0
    with connect() as connection:
        for view in views:
            open_rows(connection, view, tables[view.name])
            later = _known_later(connection, view, as_of) if view.name in pushed else None
            left_out += later.num_rows if later else 0
            for kind, keys in _sample(connection, view, recent, as_of, since.get(view.name)).items():
                compared += _compare(connection, store, view, kind, _without(keys, later), as_of)
    return Skew(tuple(compared), left_out)


def skew_reasons(skew: Skew, views: Iterable[OnlineView], as_of: datetime, max_skew: float) -> list[str]:
    """Reasons why the skew of views exceeds `max_skew`; empty if it does not.

    A view without any compared value fails too: nothing shows that it is served with the values of training.
    """
    missing = [
        f"{view.name}: no value was compared: as of {as_of.isoformat()} {skew.why_unseen(view)}, so it is served empty"
        for view in views
        if view.name in skew.unseen and max_skew < 1
    ]
    if not skew.values or skew.share <= max_skew:
        return missing
    worst = sorted(skew.differing.items(), key=lambda item: (-item[1], item[0]))
    return [
        *missing,
        f"skew {skew.share:.6f} is above the {max_skew:.6f} that max_skew allows: {sum(skew.differing.values())} of "
        f"{skew.values} values read back online differ from the offline ones",
        *(f"{feature}: {count} values differ" for feature, count in worst[:10]),
    ]


def _known_later(connection: duckdb.DuckDBPyConnection, view: OnlineView, as_of: datetime) -> pa.Table:
    keys = ", ".join(map(quoted, view.keys))
    query = f"SELECT DISTINCT {keys} FROM features.rows WHERE __known > {epoch_us(as_of)}"
    return connection.sql(query).to_arrow_table()


def _without(keys: pa.Table, others: pa.Table | None) -> pa.Table:
    return keys.join(others, keys.column_names, join_type="left anti") if others else keys


def _sample(
    connection: duckdb.DuckDBPyConnection, view: OnlineView, recent: pa.Table, as_of: datetime, since: int | None
) -> dict[str, pa.Table]:
    """The sampled keys by kind."""
    keys = ", ".join(map(quoted, view.keys))
    present = " AND ".join(f"{quoted(key)} IS NOT NULL" for key in view.keys)
    known = f"FROM features.rows WHERE __known <= {epoch_us(as_of)}"
    below = f"max(__event <= {since} AND __known > {since})::INTEGER DESC, " if since is not None else ""
    fresh = f"max(__event) >= {view.oldest(as_of)}"
    valued = " OR ".join(f"{quoted(feature)} IS NOT NULL" for feature in view.features)
    queries = {
        FRESH: f"SELECT {keys} {known} GROUP BY {keys} HAVING {fresh} "
        f"ORDER BY bool_or({valued}) DESC, max(__known) DESC, {keys} LIMIT {SAMPLE}",
        RECENT: f"SELECT DISTINCT {keys} FROM recent WHERE {present} ORDER BY ALL",
        CORRECTED: f"SELECT {keys} FROM (SELECT {keys}, __event, max(__known) AS __known, count(*) AS __rows {known} "
        f"GROUP BY {keys}, __event QUALIFY __event = max(__event) OVER (PARTITION BY {keys})) "
        f"WHERE __rows > 1 ORDER BY __known DESC, {keys} LIMIT {SAMPLE}",
        LATE: f"SELECT {keys} {known} AND __created > __event GROUP BY {keys} "
        f"ORDER BY {below}max(__known) DESC, {keys} LIMIT {SAMPLE}",
        EXPIRED: f"SELECT {keys} {known} GROUP BY {keys} HAVING NOT {fresh} "
        f"ORDER BY max(__event) DESC, {keys} LIMIT {SAMPLE}",
    }
    connection.register("recent", recent)
    return {kind: connection.sql(query).to_arrow_table() for kind, query in queries.items()}


def _compare(
    connection: duckdb.DuckDBPyConnection,
    store: OnlineStore,
    view: OnlineView,
    kind: str,
    keys: pa.Table,
    as_of: datetime,
) -> list[Compared]:
    # A view may join rows by event time only; the online store holds only rows that are known.
    joined = offline_join(view, f"(FROM features.rows WHERE __known <= {epoch_us(as_of)})", "offline ")
    timed = keys.append_column("as of", pa.array([as_of] * keys.num_rows, pa.timestamp("us", "UTC")))
    offline = asof_join(connection, timed, "as of", [joined])
    online = store.read([view], keys, as_of)
    named = [", ".join(map(str, row.values())) for row in keys.to_pylist()]
    found = []
    for feature in view.features:
        cells = zip(named, online[feature].to_pylist(), offline[f"offline {feature}"].to_pylist(), strict=True)
        values = [cell for cell in cells if cell[1] is not None or cell[2] is not None]
        differing = [(key, _text(there), _text(here)) for key, there, here in values if not _same(there, here)]
        examples = tuple(differing[:_EXAMPLES])
        found.append(Compared(view.name, feature, kind, keys.num_rows, len(values), len(differing), examples))
    return found


def _same(there: Any, here: Any) -> bool:
    """Whether two values are equal; NaN equals NaN."""
    return bool(there == here or (there != there and here != here))


def _text(value: Any) -> str:
    return "null" if value is None else str(value)
