"""Feast's offline store on DuckDB and our point-in-time join: bitemporal, with every entity row once and in order.

It avoids surprises of Feast's own file stores: a row created after the entity time is never used (no flag needed),
entity rows are not dropped, merged or sorted, and ties always have the same result. `asof_join` states the rules. A
view uses the event time alone if its tag `gatehouse.point_in_time` says `event-time-only`.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import duckdb
import pandas as pd
import pyarrow as pa
from feast import FeatureView, OnDemandFeatureView
from feast.data_source import DataSource
from feast.feature_view import DUMMY_ENTITY_ID
from feast.infra.offline_stores.offline_store import OfflineStore, RetrievalJob, RetrievalMetadata
from feast.infra.registry.base_registry import BaseRegistry
from feast.repo_config import FeastConfigBaseModel, RepoConfig
from feast.saved_dataset import SavedDatasetStorage

from gatehouse.errors import ConfigurationError
from gatehouse.features.database import connect
from gatehouse.features.point_in_time.asof_join import Joined, asof_batches
from gatehouse.features.point_in_time.entity_rows import EPOCH, EntityRows
from gatehouse.features.point_in_time.source_files import SourceFiles
from gatehouse.runtime import limits
from gatehouse.store.database import quoted, time_literal
from gatehouse.store.hidden_values import error_words

NAME: Final = "gatehouse.features.point_in_time.offline_store.AsofOfflineStore"
POINT_IN_TIME = "gatehouse.point_in_time"
"""Tag of a view or its source that says which time rule holds."""
BITEMPORAL, EVENT_TIME_ONLY = "bitemporal", "event-time-only"
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_BATCH_ROWS = 1 << 17
_MOST = 2 * 10**9
Tables = Callable[[Path], Iterator[pa.Table]]


class AsofOfflineStoreConfig(FeastConfigBaseModel):
    """`offline_store:` of `feature_store.yaml`."""

    type: Literal["gatehouse.features.point_in_time.offline_store.AsofOfflineStore"] = NAME


class AsofRetrievalMetadata(RetrievalMetadata):
    """Feast's metadata, and the time rule used for each view: `bitemporal` or `event-time-only`."""

    def __init__(self, point_in_time: dict[str, str], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.point_in_time = point_in_time


class AsofRetrievalJob(RetrievalJob):
    """A query that runs each time its result is requested."""

    def __init__(
        self,
        tables: Tables,
        full_feature_names: bool = False,
        on_demand: Sequence[OnDemandFeatureView] = (),
        metadata: Callable[[], RetrievalMetadata] | None = None,
    ) -> None:
        """Take the query.

        `tables` gives the result in parts, at least one; it may write into the directory that it gets, which is removed
        after the last part.
        """
        self._tables = tables
        self._full_feature_names = full_feature_names
        self._on_demand = list(on_demand)
        self._metadata = metadata

    def to_arrow_batches(self) -> pa.RecordBatchReader:
        """The result with on-demand features, in batches, so that a result can be larger than memory.

        Its temporary files are removed after the last batch, or when the reader is dropped.
        """

        def with_on_demand(part: pa.Table) -> pa.Table:
            # Feast's own code computes the features.
            job = AsofRetrievalJob(lambda _: iter([part]), self._full_feature_names, self._on_demand, self._metadata)
            return job.to_arrow()

        parts = map(with_on_demand, self._stored()) if self._on_demand else self._stored()
        first = next(parts)
        schema = first.schema

        def batches() -> Iterator[pa.RecordBatch]:
            yield from first.to_batches()
            for part in parts:
                yield from part.cast(schema).to_batches()

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _stored(self) -> Iterator[pa.Table]:
        with tempfile.TemporaryDirectory(prefix="gatehouse-features-") as folder:
            yield from self._tables(Path(folder))

    def _to_arrow_internal(self, timeout: int | None = None) -> pa.Table:
        tables = list(self._stored())
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _to_df_internal(self, timeout: int | None = None) -> pd.DataFrame:
        frame: pd.DataFrame = self._to_arrow_internal().to_pandas()
        return frame

    @property
    def full_feature_names(self) -> bool:
        """Whether features are called `<view>__<feature>`."""
        return self._full_feature_names

    @property
    def on_demand_feature_views(self) -> list[OnDemandFeatureView]:
        """On-demand views that Feast computes on the result."""
        return self._on_demand

    @property
    def metadata(self) -> RetrievalMetadata | None:
        """The request and its time rules; None for data that Feast pulls from a source."""
        return self._metadata() if self._metadata else None

    def persist(self, storage: SavedDatasetStorage, allow_overwrite: bool = False, timeout: int | None = None) -> None:
        """Raise a ConfigurationError: results belong into the artifact store."""
        raise ConfigurationError("AsofOfflineStore saves no datasets: write the result of to_arrow_batches().")


class AsofOfflineStore(OfflineStore):
    """Point-in-time joins that check event time and availability time by default."""

    supports_filter_by_created_timestamp = True

    @staticmethod
    def get_historical_features(
        config: RepoConfig,
        feature_views: list[FeatureView],
        feature_refs: list[str],
        entity_df: pd.DataFrame | str | None,
        registry: BaseRegistry,
        project: str,
        full_feature_names: bool = False,
        **options: Any,
    ) -> RetrievalJob:
        """Join features to entity rows. `asof_join` states the rules.

        `feature_refs` has `<view>:<feature>` for every feature. `entity_df` is a frame, or a DuckDB query, which runs
        once; its time is the column `event_timestamp`, else the only timestamp. With `full_feature_names`, features
        are called `<view>__<feature>`. The option `filter_by_created_timestamp` makes `event-time-only` views
        bitemporal.

        Raises ConfigurationError if the entity rows lack a column or have one with the name of a feature, a source
        cannot be read, or a tag has an unknown value.
        """
        if entity_df is None:
            raise ConfigurationError("AsofOfflineStore joins features to entity rows: expected entity_df, found none.")
        strict = bool(options.get("filter_by_created_timestamp"))
        rules = {_name(view): BITEMPORAL if strict else _rule(view) for view in feature_views}
        on_demand = OnDemandFeatureView.get_requested_odfvs(feature_refs, project, registry)
        if isinstance(entity_df, str):
            rows = EntityRows.of_query(entity_df, partial(_opened, config))
        else:
            rows = EntityRows.of_frame(entity_df)
        plan = [joined_view(view, feature_refs, full_feature_names, rules[_name(view)]) for view in feature_views]
        columns = ", ".join(rows.columns)
        required = {name for view in plan for name in view.keys.values()}
        required |= {name for view in on_demand for name in view.get_request_data_schema()}
        if missing := sorted(required - set(rows.columns)):
            raise ConfigurationError(
                f"The entity rows lack {', '.join(missing)}: expected the keys of the feature views and the inputs of "
                f"on-demand views, found {columns}."
            )
        if hidden := sorted({name for view in plan for name in view.features.values()} & set(rows.columns)):
            raise ConfigurationError(
                f"The features {', '.join(hidden)} would hide columns of the entity rows, found {columns}. Rename the "
                "columns, or ask for full_feature_names."
            )

        def tables(folder: Path) -> Iterator[pa.Table]:
            table, span = rows.table(), rows.span()
            with _opened(config, folder) as (connection, files):
                first, last = span or (EPOCH, EPOCH)
                joins = []
                for view, join in zip(feature_views, plan, strict=True):
                    oldest = first - view.ttl if view.ttl and view.ttl < first - _BEGINNING else None
                    joins.append(replace(join, table=files.scan(view.batch_source, oldest, last)))
                # An eighth of the memory: three such parts exist besides DuckDB's quarter and the returned part.
                yield from asof_batches(connection, table, rows.time, joins, folder, _memory() // 8)

        def metadata() -> AsofRetrievalMetadata:
            keys = [name for name in rows.columns if name != rows.time]
            return AsofRetrievalMetadata(rules, feature_refs, keys, *(rows.span() or (EPOCH, EPOCH)))

        return AsofRetrievalJob(tables, full_feature_names, on_demand, metadata)

    @staticmethod
    def pull_latest_from_table_or_query(
        config: RepoConfig,
        data_source: DataSource,
        join_key_columns: list[str],
        feature_name_columns: list[str],
        timestamp_field: str,
        created_timestamp_column: str | None,
        start_date: datetime,
        end_date: datetime,
    ) -> RetrievalJob:
        """The newest row of every key with an event in [start, end] that was known at `end`.

        The time rule is that of the source's tag, as Feast does not pass the view.
        """
        columns = join_key_columns, feature_name_columns, timestamp_field, created_timestamp_column
        return _pulled(config, data_source, *columns, start_date, end_date, newest=True)

    @staticmethod
    def pull_all_from_table_or_query(
        config: RepoConfig,
        data_source: DataSource,
        join_key_columns: list[str],
        feature_name_columns: list[str],
        timestamp_field: str,
        created_timestamp_column: str | None = None,
        start_date: datetime | None = None,
        end_date: datetime | None = None,
    ) -> RetrievalJob:
        """All rows with an event in [start, end] that were known at `end`, in the order of the table.

        Feast's local engine materializes from this and keeps the newest row of every key.
        """
        columns = join_key_columns, feature_name_columns, timestamp_field, created_timestamp_column
        return _pulled(config, data_source, *columns, start_date, end_date)

    def validate_data_source(self, config: RepoConfig, data_source: DataSource) -> None:
        """Open the source. Raises ConfigurationError if it cannot be read."""
        self.get_table_column_names_and_types_from_data_source(config, data_source)

    def get_table_column_names_and_types_from_data_source(
        self, config: RepoConfig, data_source: DataSource
    ) -> Iterable[tuple[str, str]]:
        """Names and Arrow types of the columns. Raises ConfigurationError if the source cannot be read."""
        with (
            tempfile.TemporaryDirectory() as folder,
            _opened(config, Path(folder)) as (connection, files),
            _explained(data_source),
        ):
            schema = connection.sql(f"FROM {files.scan(data_source)} LIMIT 0").to_arrow_table().schema
        return [(column.name, str(column.type)) for column in schema]


def _pulled(
    config: RepoConfig,
    source: DataSource,
    keys: list[str],
    features: list[str],
    event: str,
    created: str | None,
    start: datetime | None,
    end: datetime | None,
    newest: bool = False,
) -> AsofRetrievalJob:
    """The rows with an event in [start, end] that were known at `end`; with `newest` the newest row of every key."""
    # A time without a zone is UTC. A row without a created time was known at its event.
    happened = f"{quoted(event)}::TIMESTAMPTZ"
    known_at = f"coalesce({quoted(created)}::TIMESTAMPTZ, {happened})" if created else happened
    conditions = [f"{happened} >= {time_literal(start)}"] if start else []
    if end:
        usable_from = happened if _rule(source) == EVENT_TIME_ONLY else known_at
        conditions += [f"{time} <= {time_literal(end)}" for time in (happened, usable_from)]
    usable = " AND ".join(conditions) or "true"
    names = [*map(quoted, (key for key in keys if key != DUMMY_ENTITY_ID))]
    columns = [*names, *map(quoted, [*features, event, *([created] if created else [])])]
    columns += [f"'' AS {quoted(DUMMY_ENTITY_ID)}"] if DUMMY_ENTITY_ID in keys else []
    select = f"SELECT {', '.join(columns)} FROM"
    partition = f"PARTITION BY {', '.join(names)} " if names else ""

    def tables(folder: Path) -> Iterator[pa.Table]:
        with _opened(config, folder) as (connection, files), _explained(source):
            scan = files.scan(source, start, end, event)
            query = f"{select} {scan} WHERE {usable}"
            if newest:
                query = (
                    f"{select} (SELECT *, row_number() OVER () AS position FROM {scan}) WHERE {usable} QUALIFY "
                    f"row_number() OVER ({partition}ORDER BY {happened} DESC, {known_at} DESC, position DESC) = 1 "
                    "ORDER BY position"
                )
            reader = connection.sql(query).to_arrow_reader(_BATCH_ROWS)
            yield reader.schema.empty_table()
            for batch in reader:
                yield pa.Table.from_batches([batch])

    return AsofRetrievalJob(tables)


@contextmanager
def _opened(config: RepoConfig, folder: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, SourceFiles]]:
    """A connection with a quarter of `_memory` and `folder` for temporary files, and the sources that it reads."""
    with connect(folder / "spilled", _memory() // 4) as connection:
        yield connection, SourceFiles(connection, config.repo_path)


@contextmanager
def _explained(source: DataSource) -> Iterator[None]:
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise  # The stage reports it: the source is not wrong.
    except duckdb.Error as error:
        raise ConfigurationError(f"The source {source.name} cannot be read: {error_words(error)}") from error


def _memory() -> int:
    return min(_MOST, limits.memory() // 4)


def _rule(tagged: FeatureView | DataSource) -> str:
    """The time rule of a view, from its tag or its source's tag: `bitemporal` by default, or `event-time-only`."""
    source = tagged.batch_source if isinstance(tagged, FeatureView) else None
    rules = {(owner.tags or {}).get(POINT_IN_TIME) for owner in (tagged, source) if owner} - {None}
    if len(rules) > 1 or not rules <= {BITEMPORAL, EVENT_TIME_ONLY}:
        raise ConfigurationError(
            f"{tagged.name}: expected the tag {POINT_IN_TIME} to be {BITEMPORAL!r} or {EVENT_TIME_ONLY!r}, with the "
            f"same value on a view and its source; found {', '.join(repr(value) for value in sorted(map(str, rules)))}."
        )
    return str(rules.pop()) if rules else BITEMPORAL


def _name(view: FeatureView) -> str:
    """The name under which feature references use the view."""
    return str(view.projection.name_to_use())  # type: ignore[no-untyped-call]  # Feast left this one untyped


def joined_view(view: FeatureView, feature_refs: list[str], full_names: bool, rule: str) -> Joined:
    """How a view is joined; its table is set when it is opened."""
    source = view.batch_source
    if source is None:
        raise ConfigurationError(f"The feature view {view.name} has no batch source: expected Parquet files.")
    in_table = {new: old for old, new in source.field_mapping.items()}
    names = [name for owner, name in (ref.split(":", 1) for ref in feature_refs) if owner == _name(view)]
    prefix = view.projection.name_alias or view.name
    created = source.created_timestamp_column or ""
    renamed = view.projection.join_key_map or {}
    keys = [column.name for column in view.entity_columns if column.name != DUMMY_ENTITY_ID]
    return Joined(
        table="",
        keys={in_table.get(key, key): renamed.get(key, key) for key in keys},
        event=in_table.get(source.timestamp_field, source.timestamp_field),
        created=in_table.get(created, created),
        features={in_table.get(name, name): f"{prefix}__{name}" if full_names else name for name in names},
        ttl=view.ttl,
        event_time_only=rule == EVENT_TIME_ONLY,
    )
