"""Training-serving skew of an online store: reads back a sample and compares it with the offline values.

Both sides are read at the same time. Equal nulls prove little, so the sample has keys with fresh values for every view,
and only comparisons with a value on either side count. The sample also has cases that often go wrong: the entity rows
decided last, keys whose newest row was corrected, keys that had a late row, and keys whose newest row is expired.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gatehouse.features.computing.labels import entity_rows
from gatehouse.features.database import connect, open_tables, set_time
from gatehouse.features.definitions.repository import Repository, View, check_out
from gatehouse.features.point_in_time.asof_join import asof_join
from gatehouse.features.table_files import feature_files, raw_tables
from gatehouse.online.materialization import open_rows
from gatehouse.online.store import (
    OnlineStore,
    OnlineView,
    epoch_us,
    offline_join,
    online_view,
    require_materialized,
)
from gatehouse.store.database import quoted
from gatehouse.store.store import ArtifactStore

SAMPLE = 200
FRESH, RECENT, CORRECTED, LATE, EXPIRED = "fresh", "recent", "corrected", "late", "expired"
_EXAMPLES = 3
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class FeatureComparison:
    """The comparison of one feature for one kind of keys; `values` counts the keys with a value online or offline.

    `examples` are key, online value and offline value, as text, of the first keys that differ.
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
    """All comparisons of a sample."""

    compared: tuple[FeatureComparison, ...]

    @property
    def cells(self) -> int:
        """Number of comparisons, including null with null."""
        return sum(comparison.cells for comparison in self.compared)

    @property
    def values(self) -> int:
        """Number of comparisons with a value on either side."""
        return sum(comparison.values for comparison in self.compared)

    @property
    def differing(self) -> dict[str, int]:
        """Number of differing values by feature; only features that have any."""
        counts: Counter[str] = Counter()
        for comparison in self.compared:
            counts[comparison.feature] += comparison.differing
        return dict(+counts)

    @property
    def share(self) -> float:
        """Share of compared values that differ; 1 where none was compared, as nothing shows that they are equal."""
        return sum(self.differing.values()) / self.values if self.values else 1.0

    @property
    def unseen(self) -> tuple[str, ...]:
        """Views without any compared value."""
        values: dict[str, int] = {}
        for comparison in self.compared:
            values[comparison.view] = values.get(comparison.view, 0) + comparison.values
        return tuple(view for view, count in values.items() if not count)


def decided_last(repository: Repository, tables: Mapping[str, Sequence[Path]], as_of: datetime) -> pa.Table:
    """The entity keys of the rows decided last, at most `SAMPLE`, whose label is known at `as_of`."""
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
) -> Skew:
    """Read a sample online, join the same keys offline at `as_of`, and compare.

    Args:
        since: The watermark of every view before this materialization; later rows about an earlier event are preferred.
    """
    compared: list[FeatureComparison] = []
    with connect() as connection:
        for view in views:
            open_rows(connection, view, tables[view.name])
            for kind, keys in _sample(connection, view, recent, as_of, since.get(view.name)).items():
                compared += _compare(connection, store, view, kind, keys, as_of)
    return Skew(tuple(compared))


def _sample(
    connection: duckdb.DuckDBPyConnection, view: OnlineView, recent: pa.Table, as_of: datetime, since: int | None
) -> dict[str, pa.Table]:
    """The sampled keys by kind."""
    keys = ", ".join(map(quoted, view.keys))
    present = " AND ".join(f"{quoted(key)} IS NOT NULL" for key in view.keys)
    visible = f"FROM features.rows WHERE __known <= {epoch_us(as_of)}"
    below = f"max(__event <= {since} AND __known > {since})::INTEGER DESC, " if since is not None else ""
    fresh = f"max(__event) >= {view.oldest(as_of)}"
    valued = " OR ".join(f"{quoted(feature)} IS NOT NULL" for feature in view.features)
    queries = {
        FRESH: f"SELECT {keys} {visible} GROUP BY {keys} HAVING {fresh} "
        f"ORDER BY bool_or({valued}) DESC, max(__known) DESC, {keys} LIMIT {SAMPLE}",
        RECENT: f"SELECT DISTINCT {keys} FROM recent WHERE {present} ORDER BY ALL",
        CORRECTED: f"SELECT {keys} FROM (SELECT {keys}, __event, max(__known) AS __known, count(*) AS __rows {visible} "
        f"GROUP BY {keys}, __event QUALIFY __event = max(__event) OVER (PARTITION BY {keys})) "
        f"WHERE __rows > 1 ORDER BY __known DESC, {keys} LIMIT {SAMPLE}",
        LATE: f"SELECT {keys} {visible} AND __created > __event GROUP BY {keys} "
        f"ORDER BY {below}max(__known) DESC, {keys} LIMIT {SAMPLE}",
        EXPIRED: f"SELECT {keys} {visible} GROUP BY {keys} HAVING NOT {fresh} "
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
) -> list[FeatureComparison]:
    # A view may join rows by event time only; the online store holds only rows that are known.
    joined = offline_join(view, f"(FROM features.rows WHERE __known <= {epoch_us(as_of)})", "offline ")
    timed = keys.append_column("as of", pa.array([as_of] * keys.num_rows, pa.timestamp("us", "UTC")))
    offline = asof_join(connection, timed, "as of", [joined])
    online = store.read([view], keys, as_of)
    names = [", ".join(map(str, row.values())) for row in keys.to_pylist()]
    compared = []
    for feature in view.features:
        cells = zip(names, online[feature].to_pylist(), offline[f"offline {feature}"].to_pylist(), strict=True)
        values = [cell for cell in cells if cell[1] is not None or cell[2] is not None]
        # NaN equals NaN.
        differing = [cell for cell in values if cell[1] != cell[2] and (cell[1] == cell[1] or cell[2] == cell[2])]
        examples = tuple(
            (key, *("null" if value is None else str(value) for value in pair)) for key, *pair in differing
        )
        compared.append(
            FeatureComparison(view.name, feature, kind, len(names), len(values), len(differing), examples[:_EXAMPLES])  # type: ignore[arg-type]  # two values a key
        )
    return compared


def skew_reasons(skew: Skew, views: Iterable[OnlineView], max_skew: float) -> list[str]:
    """Reasons why the skew of views exceeds `max_skew`; empty if it does not.

    A view without any compared value fails too, unless `max_skew` is 1: nothing shows that it is served with the values
    of training.
    """
    reasons = [
        f"{view.name}: no value was compared, as no row is known, all are expired (ttl {view.ttl}) or have no values"
        for view in views
        if view.name in skew.unseen and max_skew < 1
    ]
    if skew.values and skew.share > max_skew:
        counts = Counter(skew.differing).most_common(10)
        reasons.append(
            f"skew {skew.share:.6f} is above max_skew {max_skew:.6f}: {sum(skew.differing.values())} of {skew.values} "
            f"values read online differ from the offline ones: "
            f"{', '.join(f'{feature} {count}' for feature, count in counts)}"
        )
    return reasons


@dataclass(frozen=True)
class ViewSkew:
    """The present skew of one view, which was materialized up to `as_of`.

    `not_compared` says why there is no comparison: the view is being written.
    """

    view: OnlineView
    as_of: datetime
    feature_tables: str
    skew: Skew
    not_compared: str = ""

    def body(self) -> dict[str, Any]:
        """As a dictionary for JSON."""
        return {
            "view": self.view.name,
            "as_of": self.as_of.isoformat(),
            "feature_tables": self.feature_tables,
            "unseen": bool(self.skew.unseen),
            "not_compared": self.not_compared,
            "values": self.skew.values,
            "differing": sum(self.skew.differing.values()),
            "examples": [
                {"feature": comparison.feature, "key": key, "online": online, "offline": offline}
                for comparison in self.skew.compared
                for key, online, offline in comparison.examples
            ][:_EXAMPLES],
        }


def present_skew(
    store: ArtifactStore, online: OnlineStore, views: Sequence[View], feature_tables: str
) -> Iterator[ViewSkew]:
    """The present skew of every view.

    A view is compared with the feature tables that it was written from, because later tables may have other values in
    their newest rows. Nothing is written.

    `feature_tables` are used where the online store does not name those it was written from.

    Raises ConfigurationError if the online store has no rows of a view; MissingArtifactError if the feature tables no
    longer exist; StoreError if the online store cannot be reached.
    """
    require_materialized(online, map(online_view, views))

    @cache
    def decided(tables: str, until: datetime) -> pa.Table:
        inputs = store.manifest(tables).derived_from
        with store.workspace() as workspace:
            repository = check_out(store, inputs["definitions"], workspace / "feature_repo")
        return decided_last(repository, raw_tables(store, inputs["snapshot"]), until)

    for view in map(online_view, views):
        state = online.state(view.name)
        tables, moment = state.tables or feature_tables, _BEGINNING + timedelta(microseconds=state.known or 0)
        files = [*feature_files(store, tables)[view.name].values()]
        skew = measure_skew(online, [view], {view.name: files}, decided(tables, moment), moment, {})
        if online.state(view.name) == state and state.last == state.generation:
            yield ViewSkew(view, moment, tables, skew)
        else:
            why = (
                f"{view.name}: it is being written. Compare when that has ended; if the writer was killed, run "
                "`gatehouse features materialize`."
            )
            yield ViewSkew(view, moment, tables, Skew(()), why)
