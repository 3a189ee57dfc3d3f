"""Feast's offline store on DuckDB and our point-in-time join: bitemporal, with every entity row once and in order.

It avoids surprises of Feast's own file stores: a row created after the entity time is never used (no flag needed),
entity rows are not dropped, merged or sorted, and ties always have the same result. `asof_join` states the rules. A
view uses the event time alone if its tag `gatehouse.point_in_time` says `event-time-only`.
"""

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import duckdb
import pandas as pd
import pyarrow as pa
from feast import FeatureView, OnDemandFeatureView
from feast.data_source import DataSource
from feast.feature_logging import LoggingConfig, LoggingSource
from feast.feature_view import DUMMY_ENTITY_ID
from feast.infra.offline_stores.offline_store import OfflineStore, RetrievalJob
from feast.infra.registry.base_registry import BaseRegistry
from feast.repo_config import FeastConfigBaseModel, RepoConfig
from feast.utils import compute_non_entity_date_range
from pydantic import field_validator

from gatehouse.errors import ConfigurationError
from gatehouse.features.database import connect, quoted
from gatehouse.features.point_in_time.asof_join import asof_batches
from gatehouse.features.point_in_time.entity_rows import EPOCH, EntityRows
from gatehouse.features.point_in_time.joined_views import (
    BITEMPORAL,
    EVENT_TIME_ONLY,
    between,
    called,
    check_columns,
    in_utc,
    joined_view,
    keys_in_range,
    known_at,
    needed_span,
    point_in_time,
)
from gatehouse.features.point_in_time.retrieval_job import AsofRetrievalJob, AsofRetrievalMetadata
from gatehouse.features.point_in_time.source_files import SourceFiles
from gatehouse.runtime import limits
from gatehouse.store.hidden_values import said_by

_BATCH_ROWS = 1 << 17
_SIZE = re.compile(r"(\d+)\s*(MB|GB|TB)")
_MOST = 2 * 10**9
_BYTES = {"MB": 10**6, "GB": 10**9, "TB": 10**12}


class AsofOfflineStoreConfig(FeastConfigBaseModel):
    """`offline_store:` of `feature_store.yaml`."""

    type: Literal["gatehouse.features.point_in_time.offline_store.AsofOfflineStore"] = (
        "gatehouse.features.point_in_time.offline_store.AsofOfflineStore"
    )
    memory_limit: str = ""
    """Memory that a retrieval may use besides its entity rows and the returned part, as `500MB` or `4GB`; other data is
    kept on disk. At least 100MB. By default a quarter of the process's memory, at most 2GB.
    """

    @field_validator("memory_limit")
    @classmethod
    def _is_a_size(cls, value: str) -> str:
        if value and _bytes(value) < 10**8:
            raise ValueError(f"memory_limit: expected a size such as 500MB or 4GB, at least 100MB, found {value!r}")
        return value


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

        Args:
            config: Feast's settings.
            feature_views: Views on Parquet files.
            feature_refs: `<view>:<feature>` of every wanted feature.
            entity_df: A frame, or a DuckDB query, which runs once; its time is the column `event_timestamp`, else the
                only timestamp. None for every key with an event in the range, each once, at the range's end.
            registry: Where on-demand views are looked up.
            project: The Feast project.
            full_feature_names: Call features `<view>__<feature>`.
            options: `start_date` and `end_date`, for use without entity rows, as Feast completes them.
                `filter_by_created_timestamp` is accepted; it makes an `event-time-only` view bitemporal.

        Raises:
            ConfigurationError: if the entity rows lack a key, the time or an input of an on-demand view; if a feature
                would hide a column; if a source cannot be read; or if a tag has an unknown value.
        """
        strict = bool(options.get("filter_by_created_timestamp"))
        rules = {called(view): BITEMPORAL if strict else point_in_time(view) for view in feature_views}
        on_demand = OnDemandFeatureView.get_requested_odfvs(feature_refs, project, registry)
        since = None
        if entity_df is None:
            since, until = compute_non_entity_date_range(
                feature_views, start_date=options.get("start_date"), end_date=options.get("end_date")
            )
            rows = EntityRows.of_query(keys_in_range(feature_views, rules, since, until), partial(_opened, config))
        elif isinstance(entity_df, str):
            rows = EntityRows.of_query(lambda _: entity_df, partial(_opened, config))
        else:
            rows = EntityRows.of_frame(entity_df)
        plan = [joined_view(view, feature_refs, full_feature_names, rules[called(view)]) for view in feature_views]
        check_columns(rows, plan, on_demand)

        def tables(folder: Path) -> Iterator[pa.Table]:
            table, span = rows.table(), rows.span()
            with _opened(config, folder) as (connection, files):
                joined = [
                    replace(each, table=files.scan(view.batch_source, *needed_span(view, span, since)))
                    for view, each in zip(feature_views, plan, strict=True)
                ]
                yield from asof_batches(connection, table, rows.time, joined, folder, _searched_at_once(config))

        def metadata() -> AsofRetrievalMetadata:
            keys = [name for name in rows.columns if name != rows.time]
            return AsofRetrievalMetadata(feature_refs, keys, *(rows.span() or (EPOCH, EPOCH)), rules)

        return AsofRetrievalJob(tables, full_feature_names, on_demand, metadata, config.repo_path)

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
        columns = _columns(join_key_columns, feature_name_columns, timestamp_field, created_timestamp_column)
        usable = _usable(data_source, timestamp_field, created_timestamp_column, start_date, end_date)
        created = known_at(timestamp_field, created_timestamp_column)
        order = f"{in_utc(timestamp_field)} DESC, {created} DESC, position DESC"
        keys = ", ".join(quoted(key) for key in join_key_columns if key != DUMMY_ENTITY_ID)
        partition = f"PARTITION BY {keys} " if keys else ""
        return _pulled(
            config,
            data_source,
            timestamp_field,
            (start_date, end_date),
            lambda scan: (
                f"SELECT {columns} FROM (SELECT *, row_number() OVER () AS position FROM {scan}) WHERE {usable} "
                f"QUALIFY row_number() OVER ({partition}ORDER BY {order}) = 1 ORDER BY position"
            ),
        )

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
        columns = _columns(join_key_columns, feature_name_columns, timestamp_field, created_timestamp_column)
        usable = _usable(data_source, timestamp_field, created_timestamp_column, start_date, end_date)
        return _pulled(
            config,
            data_source,
            timestamp_field,
            (start_date, end_date),
            lambda scan: f"SELECT {columns} FROM {scan} WHERE {usable}",
        )

    @staticmethod
    def write_logged_features(
        config: RepoConfig,
        data: pa.Table | Path,
        source: LoggingSource,
        logging_config: LoggingConfig,
        registry: BaseRegistry,
    ) -> None:
        """Raise an error: feature logs belong into the artifact store, not beside the feature tables.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError("AsofOfflineStore does not write feature logs; publish them to the artifact store.")

    def validate_data_source(self, config: RepoConfig, data_source: DataSource) -> None:
        """Open the source. Raises ConfigurationError if it cannot be read or lacks its time columns."""
        found = {name for name, _ in self.get_table_column_names_and_types_from_data_source(config, data_source)}
        mapped = {new: old for old, new in data_source.field_mapping.items()}
        for column in (data_source.timestamp_field, data_source.created_timestamp_column):
            if column and mapped.get(column, column) not in found:
                raise ConfigurationError(
                    f"The source {data_source.name}: expected the column {column}, found {', '.join(sorted(found))}."
                )

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
    event: str,
    span: tuple[datetime | None, datetime | None],
    query: Callable[[str], str],
) -> AsofRetrievalJob:
    def tables(folder: Path) -> Iterator[pa.Table]:
        with _opened(config, folder) as (connection, files), _explained(source):
            reader = connection.sql(query(files.scan(source, *span, event))).to_arrow_reader(_BATCH_ROWS)
            yield reader.schema.empty_table()
            for batch in reader:
                yield pa.Table.from_batches([batch])

    return AsofRetrievalJob(tables, repo_path=config.repo_path)


@contextmanager
def _opened(config: RepoConfig, folder: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, SourceFiles]]:
    """A connection with a quarter of the memory and `folder` for temporary files, and the sources that it reads."""
    with connect(folder / "spilled", _memory(config) // 4) as connection:
        yield connection, SourceFiles(connection, config.repo_path)


@contextmanager
def _explained(source: DataSource) -> Iterator[None]:
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise  # The stage reports it: the source is not wrong.
    except duckdb.Error as error:
        raise ConfigurationError(f"The source {source.name} cannot be read: {said_by(error)}") from error


def _memory(config: RepoConfig) -> int:
    return _bytes(str(getattr(config.offline_store, "memory_limit", ""))) or min(_MOST, limits.memory() // 4)


def _searched_at_once(config: RepoConfig) -> int:
    """An eighth of the memory, because three such parts exist besides DuckDB's quarter and the returned part."""
    return _memory(config) // 8


def _bytes(size: str) -> int:
    found = _SIZE.fullmatch(size)
    return int(found[1]) * _BYTES[found[2]] if found else 0


def _columns(keys: list[str], features: list[str], event: str, created: str | None) -> str:
    names = [key for key in keys if key != DUMMY_ENTITY_ID]
    dummy = [f"'' AS {quoted(DUMMY_ENTITY_ID)}"] if DUMMY_ENTITY_ID in keys else []
    return ", ".join([*map(quoted, [*names, *features, event, *([created] if created else [])]), *dummy])


def _usable(source: DataSource, event: str, created: str | None, start: datetime | None, end: datetime | None) -> str:
    return between(event, "" if point_in_time(source) == EVENT_TIME_ONLY else created or "", start, end)
