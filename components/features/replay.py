"""The time-travel replay: at a few cuts, recompute the features from what was known then, and compare.

At a cut T every raw table is taken back to what it was at T (`known/<table>.sql` of the repository), the feature tables
are computed again, and the entity rows decided in the hours up to T are joined again. A feature that differs from the
training set's used something that nobody knew at T. A leak of less than the time from a decision to the next cut can
hide from a single row, not from all rows of the window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.features.asof_join import Joined, asof_join
from gatehouse.components.features.compute import compute_views, connect, go_back, open_tables, run_macros, set_time
from gatehouse.components.features.repository import EVENT_TIMESTAMP, Repository

CUTS = 6
WINDOW = timedelta(hours=6)


@dataclass(frozen=True)
class Difference:
    """A feature whose replayed values differ: how many rows, of how many, and the first of them."""

    view: str
    feature: str
    cut: str
    rows: int
    of: int
    example: dict[str, Any]

    def __str__(self) -> str:
        keys = ", ".join(f"{name} {value}" for name, value in self.example.items() if name not in ("stored", "replayed"))
        return (
            f"{self.view}.{self.feature} holds what was not known at {self.cut}: {self.rows} of {self.of} rows differ, "
            f"first {keys}: stored {self.example['stored']}, replayed {self.example['replayed']}"
        )


def cut_times(decisions: pa.ChunkedArray, count: int = CUTS) -> list[datetime]:
    """`count` moments spread evenly over the decisions, busy times as likely as they are frequent."""
    ordered = pc.sort_indices(decisions)
    places = [int((number + 0.5) * len(decisions) / count) for number in range(count)]
    return sorted({decisions[ordered[place].as_py()].as_py() for place in places}) if len(decisions) else []


def replay(
    repository: Repository,
    tables: Mapping[str, Sequence[Path]],
    training_set: pa.Table,
    views: Mapping[str, Sequence[str]],
    cut: datetime,
    window: timedelta = WINDOW,
) -> tuple[int, list[Difference]]:
    """Replay one cut.

    Args:
        repository: The feature definitions.
        tables: Raw Parquet files by table.
        training_set: What was retrieved: entity keys, decision_time and features.
        views: Features by view.
        cut: The moment to go back to.
        window: Rows decided in (cut - window, cut] are compared.

    Returns:
        How many rows were compared, and the features that differ in them.
    """
    decided = pc.and_(
        pc.greater(training_set["decision_time"], pa.scalar(cut - window, pa.timestamp("us", "UTC"))),
        pc.less_equal(training_set["decision_time"], pa.scalar(cut, pa.timestamp("us", "UTC"))),
    )
    stored = training_set.filter(decided)
    rows = stored.select([*repository.entity_keys, "decision_time"])
    with connect() as connection:
        open_tables(connection, tables, "source")
        set_time(connection, "as_of", cut)
        set_time(connection, "since", cut - timedelta(days=repository.spec.history_days))
        run_macros(connection, repository)
        for table in tables:
            go_back(connection, repository, table)
        computed = compute_views(connection, repository, views)
        joined = []
        for name, features in views.items():
            connection.register(f"replayed_{name}", computed[name])
            spec = repository.views[name].spec
            joined.append(
                Joined(
                    table=f'"replayed_{name}"',
                    keys={key: key for key in spec.entities},
                    event=EVENT_TIMESTAMP,
                    created=spec.created_timestamp,
                    features={feature: feature for feature in features},
                    ttl=spec.ttl,
                )
            )
        replayed = asof_join(connection, rows, "decision_time", joined)
    found = [_compare(view, feature, cut, stored, replayed) for view, features in views.items() for feature in features]
    return stored.num_rows, [difference for difference in found if difference]


def _compare(view: str, feature: str, cut: datetime, stored: pa.Table, replayed: pa.Table) -> Difference | None:
    old, new = stored[feature], replayed[feature]
    same = pc.fill_null(pc.equal(old, new), False)
    both_null = pc.and_(pc.is_null(old, nan_is_null=True), pc.is_null(new, nan_is_null=True))
    differs = pc.indices_nonzero(pc.invert(pc.or_(same, both_null)).combine_chunks())
    if not len(differs):
        return None
    first = differs[0].as_py()
    names = replayed.column_names.index("decision_time") + 1
    keys = {name: str(replayed[name][first].as_py()) for name in replayed.column_names[:names]}
    example = {**keys, "stored": old[first].as_py(), "replayed": new[first].as_py()}
    return Difference(view, feature, cut.isoformat(), len(differs), stored.num_rows, example)

