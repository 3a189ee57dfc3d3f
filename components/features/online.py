"""Materializes feature views into Feast's SQLite online store, and compares what comes back with the offline value."""

import contextlib
import io
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from feast import FeatureService, FeatureStore

from gatehouse.components.features.asof_join import Joined, asof_join
from gatehouse.components.features.compute import connect, open_tables
from gatehouse.components.features.repository import EVENT_TIMESTAMP, Repository

logger = logging.getLogger(__name__)

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
SAMPLE = 200


@dataclass(frozen=True)
class Skew:
    """How many cells were compared, and in how many of them online and offline differ, by feature."""

    cells: int
    differing: dict[str, int]

    @property
    def share(self) -> float:
        """Differing cells per compared cell; zero where nothing was compared."""
        return sum(self.differing.values()) / self.cells if self.cells else 0.0


def materialize_views(feast: FeatureStore, repository: Repository, views: Sequence[str], as_of: datetime) -> None:
    """Write the newest row of every key that is still fresh at `as_of` to the online store."""
    for name in views:
        ttl = repository.views[name].spec.ttl
        start = max(_BEGINNING, as_of - ttl) if ttl else _BEGINNING
        with contextlib.redirect_stdout(io.StringIO()) as said:
            feast.materialize(start_date=start, end_date=as_of, feature_views=[name])
        logger.debug("%s", said.getvalue().strip())


def measure_skew(
    feast: FeatureStore,
    repository: Repository,
    service: FeatureService,
    rows: pa.Table,
    as_of: datetime,
    tables: dict[str, Any],
) -> Skew:
    """Read `rows` online, and the same rows offline at `as_of`, and count the cells that differ.

    Args:
        feast: The applied and materialized feature repository.
        repository: Its definitions.
        service: What is read.
        rows: Entity keys only.
        as_of: The time of materialization.
        tables: Parquet file by view.
    """
    views = {
        projection.name: [field.name for field in projection.features]
        for projection in service.feature_view_projections
    }
    online = feast.get_online_features(features=service, entity_rows=rows.to_pylist()).to_dict()
    timed = rows.append_column("as_of", pa.array([as_of] * rows.num_rows, pa.timestamp("us", "UTC")))
    with connect() as connection:
        open_tables(connection, {name: [tables[name]] for name in views}, "features")
        joined = [
            Joined(
                table=f'features."{name}"',
                keys={key: key for key in repository.views[name].spec.entities},
                event=EVENT_TIMESTAMP,
                created=repository.views[name].spec.created_timestamp,
                features={feature: feature for feature in features},
                ttl=repository.views[name].spec.ttl,
            )
            for name, features in views.items()
        ]
        offline = asof_join(connection, timed, "as_of", joined)
    differing: dict[str, int] = {}
    for feature in (name for names in views.values() for name in names):
        pairs = zip(online[feature], offline[feature].to_pylist(), strict=True)
        count = sum(1 for there, here in pairs if there != here)
        if count:
            differing[feature] = count
    return Skew(rows.num_rows * sum(len(names) for names in views.values()), differing)
