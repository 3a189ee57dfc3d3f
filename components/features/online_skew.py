"""Training-serving skew of an online store: a sample is read back and compared with the offline value at the same time.

The sample looks for trouble. Beside the entity rows decided last it takes, of every view, keys whose newest row was
corrected, keys that had a late row, and keys whose newest row is expired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gatehouse.components.features.asof_join import Joined, asof_join
from gatehouse.components.features.compute import connect
from gatehouse.components.features.materialization import open_rows, quoted
from gatehouse.components.features.online import OnlineStore, OnlineView, epoch_us

SAMPLE = 200
RECENT, CORRECTED, LATE, EXPIRED = "recent", "corrected", "late", "expired"
_EXAMPLES = 3


@dataclass(frozen=True)
class Compared:
    """One feature of one kind of keys: how many were compared, how many differ, and a few that do.

    Attributes:
        view: The view.
        feature: The feature.
        kind: `recent`, `corrected`, `late` or `expired`.
        cells: Keys compared.
        differing: Keys whose values differ.
        examples: Key, online and offline value, as text, of the first that differ.
    """

    view: str
    feature: str
    kind: str
    cells: int
    differing: int
    examples: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Skew:
    """All comparisons of a sample."""

    compared: tuple[Compared, ...]

    @property
    def cells(self) -> int:
        """Values compared."""
        return sum(one.cells for one in self.compared)

    @property
    def differing(self) -> dict[str, int]:
        """Values that differ, by feature; only features with any."""
        found: dict[str, int] = {}
        for one in self.compared:
            if one.differing:
                found[one.feature] = found.get(one.feature, 0) + one.differing
        return found

    @property
    def share(self) -> float:
        """Differing values per compared value; zero where nothing was compared."""
        return sum(self.differing.values()) / self.cells if self.cells else 0.0


def measure_skew(
    store: OnlineStore,
    views: Sequence[OnlineView],
    tables: Mapping[str, Sequence[Path]],
    recent: pa.Table,
    as_of: datetime,
    since: Mapping[str, int | None],
) -> Skew:
    """Read a sample online, join the same keys offline at `as_of`, and compare.

    Args:
        store: The online store, materialized up to `as_of`.
        views: What is served, with the features that are served.
        tables: Parquet files by view.
        recent: Entity keys of the rows decided last.
        as_of: The time of both.
        since: The watermark of every view before this materialization; rows below it that came later are preferred.
    """
    compared: list[Compared] = []
    with connect() as connection:
        for view in views:
            open_rows(connection, view, tables[view.name])
            for kind, keys in _sample(connection, view, recent, as_of, since.get(view.name)).items():
                compared += _compare(connection, store, view, kind, keys, as_of)
    return Skew(tuple(compared))


def _sample(
    connection: duckdb.DuckDBPyConnection, view: OnlineView, recent: pa.Table, as_of: datetime, since: int | None
) -> dict[str, pa.Table]:
    """Keys by kind."""
    keys = ", ".join(map(quoted, view.keys))
    present = " AND ".join(f"{quoted(key)} IS NOT NULL" for key in view.keys)
    known = f"FROM features.rows WHERE __known <= {epoch_us(as_of)}"
    below = f"max(__event <= {since} AND __known > {since})::INTEGER DESC, " if since is not None else ""
    queries = {
        RECENT: f"SELECT DISTINCT {keys} FROM recent WHERE {present} ORDER BY ALL",
        CORRECTED: f"SELECT {keys} FROM (SELECT {keys}, __event, max(__known) AS __known, count(*) AS __rows {known} "
        f"GROUP BY {keys}, __event QUALIFY __event = max(__event) OVER (PARTITION BY {keys})) "
        f"WHERE __rows > 1 ORDER BY __known DESC, {keys} LIMIT {SAMPLE}",
        LATE: f"SELECT {keys} {known} AND __created > __event GROUP BY {keys} "
        f"ORDER BY {below}max(__known) DESC, {keys} LIMIT {SAMPLE}",
        EXPIRED: f"SELECT {keys} {known} GROUP BY {keys} HAVING max(__event) < {view.oldest(as_of)} "
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
    joined = Joined(
        table="features.rows",
        keys={key: key for key in view.keys},
        event=view.event,
        created=view.created,
        features={feature: f"offline {feature}" for feature in view.features},
        ttl=view.ttl,
    )
    timed = keys.append_column("as of", pa.array([as_of] * keys.num_rows, pa.timestamp("us", "UTC")))
    offline = asof_join(connection, timed, "as of", [joined])
    online = store.read([view], keys, as_of)
    named = [", ".join(map(str, row.values())) for row in keys.to_pylist()]
    found = []
    for feature in view.features:
        cells = zip(named, online[feature].to_pylist(), offline[f"offline {feature}"].to_pylist(), strict=True)
        differing = [(key, _text(there), _text(here)) for key, there, here in cells if not _same(there, here)]
        found.append(Compared(view.name, feature, kind, keys.num_rows, len(differing), tuple(differing[:_EXAMPLES])))
    return found


def _same(there: Any, here: Any) -> bool:
    """Whether two values are the same; not-a-number is the same as itself."""
    return bool(there == here or (there != there and here != here))


def _text(value: Any) -> str:
    return "null" if value is None else str(value)
