"""Feast's offline store on DuckDB ASOF joins over Parquet: bitemporal, and every entity row once and in order.

It differs from Feast's own file stores where those surprise: a row created after the entity time is never used (no
flag needed), entity rows are neither dropped nor merged nor sorted, and ties have one answer. `asof_join` states the
rules. Time columns come back as UTC microseconds.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pyarrow as pa
from feast import FeatureView, FileSource, OnDemandFeatureView
from feast.data_source import DataSource
from feast.feature_logging import LoggingConfig, LoggingSource
from feast.feature_view import DUMMY_ENTITY_ID
from feast.infra.offline_stores.file_source import SavedDatasetFileStorage
from feast.infra.offline_stores.offline_store import OfflineStore, RetrievalJob, RetrievalMetadata
from feast.infra.registry.base_registry import BaseRegistry
from feast.repo_config import FeastConfigBaseModel, RepoConfig
from feast.saved_dataset import SavedDatasetStorage

from gatehouse.components.features.asof_join import Joined, asof_join
from gatehouse.components.features.compute import connect, write_parquet
from gatehouse.errors import ConfigurationError

_TIME = "event_timestamp"


class AsofOfflineStoreConfig(FeastConfigBaseModel):
    """`offline_store:` of `feature_store.yaml`."""

    type: Literal["gatehouse.components.features.offline_store.AsofOfflineStore"] = (
        "gatehouse.components.features.offline_store.AsofOfflineStore"
    )


class AsofRetrievalJob(RetrievalJob):
    """A query that runs when its result is asked for."""

    def __init__(
        self,
        evaluate: Callable[[], pa.Table],
        full_feature_names: bool = False,
        on_demand: Sequence[OnDemandFeatureView] = (),
        metadata: RetrievalMetadata | None = None,
    ) -> None:
        self._evaluate = evaluate
        self._full_feature_names = full_feature_names
        self._on_demand = list(on_demand)
        self._metadata = metadata

    def _to_arrow_internal(self, timeout: int | None = None) -> pa.Table:
        return self._evaluate()

    def _to_df_internal(self, timeout: int | None = None) -> pd.DataFrame:
        frame: pd.DataFrame = self._evaluate().to_pandas()
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
        """What was asked for."""
        return self._metadata

    def persist(self, storage: SavedDatasetStorage, allow_overwrite: bool = False, timeout: int | None = None) -> None:
        """Write the result to a Parquet file.

        Raises:
            ConfigurationError: if the storage is no file, or the file exists and may not be overwritten.
        """
        if not isinstance(storage, SavedDatasetFileStorage):
            raise ConfigurationError(f"AsofOfflineStore saves datasets to files only, found {type(storage).__name__}.")
        path = Path(storage.file_options.uri)
        if path.exists() and not allow_overwrite:
            raise ConfigurationError(
                f"The saved dataset {path.name} exists. Give another name, or allow_overwrite=True."
            )
        write_parquet(self._evaluate(), path)


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
        """Join features to entity rows. See `asof_join` for the rules.

        Args:
            config: Feast's settings.
            feature_views: Views on Parquet files.
            feature_refs: `<view>:<feature>` of every feature that is wanted.
            entity_df: A frame, or a DuckDB query; its time is the column `event_timestamp`, else the only timestamp.
            registry: Where on-demand views are looked up.
            project: The Feast project.
            full_feature_names: Call features `<view>__<feature>`.
            options: `filter_by_created_timestamp` is accepted; the store always does.

        Raises:
            ConfigurationError: if there are no entity rows, no time column, or a view is not a Parquet file.
        """
        if entity_df is None:
            raise ConfigurationError("AsofOfflineStore joins to entity rows: expected entity_df, found a time range.")
        joined = [_joined(config, view, feature_refs, full_feature_names) for view in feature_views]
        on_demand = OnDemandFeatureView.get_requested_odfvs(feature_refs, project, registry)
        rows = _entity_table(entity_df)
        time = _time_column(rows)
        keys = [name for name in rows.column_names if name != time]

        def evaluate() -> pa.Table:
            with connect() as connection:
                return asof_join(connection, rows, time, joined)

        return AsofRetrievalJob(evaluate, full_feature_names, on_demand, RetrievalMetadata(feature_refs, keys))

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
        """The newest row of every key with an event in [start, end] that was known at `end`."""
        columns = _columns(join_key_columns, feature_name_columns, timestamp_field, created_timestamp_column)
        where = _usable(timestamp_field, created_timestamp_column, start_date, end_date)
        known = _known(timestamp_field, created_timestamp_column)
        order = f"{_utc(timestamp_field)} DESC, {known} DESC, position DESC"
        keys = ", ".join(_name(key) for key in join_key_columns if key != DUMMY_ENTITY_ID)
        partition = f"PARTITION BY {keys} " if keys else ""
        query = (
            f"SELECT {columns} FROM (SELECT *, row_number() OVER () AS position FROM {_scan(config, data_source)}) "
            f"WHERE {where} QUALIFY row_number() OVER ({partition}ORDER BY {order}) = 1 ORDER BY position"
        )
        return AsofRetrievalJob(lambda: _select(query))

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

        Feast's local engine materializes from this, keeping the newest row of every key.
        """
        columns = _columns(join_key_columns, feature_name_columns, timestamp_field, created_timestamp_column)
        where = _usable(timestamp_field, created_timestamp_column, start_date, end_date)
        return AsofRetrievalJob(lambda: _select(f"SELECT {columns} FROM {_scan(config, data_source)} WHERE {where}"))

    @staticmethod
    def write_logged_features(
        config: RepoConfig,
        data: pa.Table | Path,
        source: LoggingSource,
        logging_config: LoggingConfig,
        registry: BaseRegistry,
    ) -> None:
        """Refused: feature logs are artifacts of the store, not files beside the feature tables."""
        raise ConfigurationError("AsofOfflineStore does not write feature logs; publish them to the artifact store.")

    @staticmethod
    def offline_write_batch(
        config: RepoConfig, feature_view: FeatureView, table: pa.Table, progress: Callable[[int], Any] | None
    ) -> None:
        """Refused: feature tables are immutable; a new version is computed and published."""
        raise ConfigurationError(
            f"AsofOfflineStore does not write to {feature_view.name}: feature tables are immutable. "
            "Run compute_features."
        )


def _joined(config: RepoConfig, view: FeatureView, feature_refs: list[str], full_names: bool) -> Joined:
    called = str(view.projection.name_to_use())  # type: ignore[no-untyped-call]  # Feast left this one untyped
    source = view.batch_source
    if source is None:
        raise ConfigurationError(f"The feature view {view.name} has no batch source: expected a Parquet file.")
    renamed = {new: old for old, new in source.field_mapping.items()}
    wanted = [name for owner, name in (ref.split(":", 1) for ref in feature_refs) if owner == called]
    renames = view.projection.join_key_map or {}
    keys = [column.name for column in view.entity_columns if column.name != DUMMY_ENTITY_ID]
    return Joined(
        table=_scan(config, source),
        keys={renamed.get(key, key): renames.get(key, key) for key in keys},
        event=source.timestamp_field,
        created=source.created_timestamp_column or "",
        features={renamed.get(name, name): f"{called}__{name}" if full_names else name for name in wanted},
        ttl=view.ttl,
    )


def _entity_table(entity_df: pd.DataFrame | str) -> pa.Table:
    if isinstance(entity_df, str):
        return _select(entity_df)
    table = pa.Table.from_pandas(entity_df, preserve_index=False)
    columns = [
        column.cast(pa.timestamp("us", column.type.tz), safe=False) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _time_column(rows: pa.Table) -> str:
    times = [column.name for column in rows.schema if pa.types.is_timestamp(column.type)]
    if _TIME in rows.column_names:
        return _TIME
    if len(times) != 1:
        raise ConfigurationError(f"Entity rows: expected a column {_TIME!r} or one timestamp, found {times or 'none'}.")
    return str(times[0])


def _scan(config: RepoConfig, source: DataSource) -> str:
    if not isinstance(source, FileSource):
        raise ConfigurationError(
            f"AsofOfflineStore reads Parquet files: the source {source.name} is a {type(source).__name__}."
        )
    path = Path(source.path)
    if not path.is_absolute() and config.repo_path is not None:
        path = Path(config.repo_path) / path
    files = str(path / "*.parquet" if path.is_dir() else path)
    return "read_parquet('" + files.replace("'", "''") + "')"


def _columns(keys: list[str], features: list[str], event: str, created: str | None) -> str:
    names = [key for key in keys if key != DUMMY_ENTITY_ID]
    dummy = [f"'' AS {_name(DUMMY_ENTITY_ID)}"] if DUMMY_ENTITY_ID in keys else []
    return ", ".join([*map(_name, [*names, *features, event, *([created] if created else [])]), *dummy])


def _usable(event: str, created: str | None, start: datetime | None, end: datetime | None) -> str:
    bounds = [f"{_utc(event)} >= {_moment(start)}"] if start else []
    bounds += [f"{_utc(event)} <= {_moment(end)}", f"{_known(event, created)} <= {_moment(end)}"] if end else []
    return " AND ".join(bounds) or "true"


def _known(event: str, created: str | None) -> str:
    return f"coalesce({_utc(created)}, {_utc(event)})" if created else _utc(event)


def _select(query: str) -> pa.Table:
    with connect() as connection:
        return connection.sql(query).to_arrow_table()


def _moment(moment: datetime) -> str:
    return f"TIMESTAMPTZ '{moment.isoformat()}'"


def _utc(column: str) -> str:
    return f"{_name(column)}::TIMESTAMPTZ"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
