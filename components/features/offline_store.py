"""Feast's offline store on DuckDB and our point-in-time join: bitemporal, and every entity row once and in order.

It differs from Feast's own file stores where those surprise: a row created after the entity time is never used (no
flag needed), entity rows are neither dropped nor merged nor sorted, and ties have one answer. `asof_join` states the
rules; a view follows the event time alone where its tag `gatehouse.point_in_time` says `event-time-only`.
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

from gatehouse.components.features.asof_join import Joined, asof_batches
from gatehouse.components.features.compute import connect
from gatehouse.components.features.entity_rows import EPOCH, TIME, EntityRows
from gatehouse.components.features.retrieval_job import AsofRetrievalJob, AsofRetrievalMetadata
from gatehouse.components.features.source_files import SourceFiles
from gatehouse.errors import ConfigurationError

POINT_IN_TIME = "gatehouse.point_in_time"
BITEMPORAL, EVENT_TIME_ONLY = "bitemporal", "event-time-only"
_BATCH_ROWS = 1 << 17
_SIZE = re.compile(r"(\d+)\s*(MB|GB|TB)")
_BYTES = {"MB": 10**6, "GB": 10**9, "TB": 10**12}


class AsofOfflineStoreConfig(FeastConfigBaseModel):
    """`offline_store:` of `feature_store.yaml`."""

    type: Literal["gatehouse.components.features.offline_store.AsofOfflineStore"] = (
        "gatehouse.components.features.offline_store.AsofOfflineStore"
    )
    memory_limit: str = "2GB"
    """What a retrieval may take beside its entity rows and the result that is held, as `500MB` or `4GB`; the rest waits
    on disk. At least 100MB."""

    @field_validator("memory_limit")
    @classmethod
    def _is_a_size(cls, value: str) -> str:
        if _bytes(value) < 10**8:
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
        """Join features to entity rows. See `asof_join` for the rules.

        Args:
            config: Feast's settings.
            feature_views: Views on Parquet files.
            feature_refs: `<view>:<feature>` of every feature that is wanted.
            entity_df: A frame, or a DuckDB query, which runs once; its time is the column `event_timestamp`, else the
                only timestamp. None for every key with an event in the range, each once, at the range's end.
            registry: Where on-demand views are looked up.
            project: The Feast project.
            full_feature_names: Call features `<view>__<feature>`.
            options: `start_date` and `end_date` without entity rows, as Feast completes them.
                `filter_by_created_timestamp` is accepted; it makes a view of `event-time-only` bitemporal.

        Raises:
            ConfigurationError: if the entity rows lack a key, the time or what an on-demand view asks for; a feature
                would hide a column; a source cannot be read; or a tag has an unknown value.
        """
        strict = bool(options.get("filter_by_created_timestamp"))
        rules = {_called(view): BITEMPORAL if strict else point_in_time(view) for view in feature_views}
        on_demand = OnDemandFeatureView.get_requested_odfvs(feature_refs, project, registry)
        since = None
        if entity_df is None:
            since, until = compute_non_entity_date_range(
                feature_views, start_date=options.get("start_date"), end_date=options.get("end_date")
            )
            rows = EntityRows.of_query(_keys_in_range(feature_views, rules, since, until), partial(_opened, config))
        elif isinstance(entity_df, str):
            rows = EntityRows.of_query(lambda _: entity_df, partial(_opened, config))
        else:
            rows = EntityRows.of_frame(entity_df)
        plan = [_joined(view, feature_refs, full_feature_names, rules[_called(view)]) for view in feature_views]
        _check_columns(rows, plan, on_demand)

        def tables(folder: Path) -> Iterator[pa.Table]:
            table, span = rows.table(), rows.span()
            with _opened(config, folder) as (connection, files):
                joined = [
                    replace(each, table=files.scan(view.batch_source, *_needed(view, span, since)))
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

        The rule of time is that of the source's tag, as Feast does not name the view.
        """
        columns = _columns(join_key_columns, feature_name_columns, timestamp_field, created_timestamp_column)
        usable = _usable(data_source, timestamp_field, created_timestamp_column, start_date, end_date)
        created = _known(timestamp_field, created_timestamp_column)
        order = f"{_utc(timestamp_field)} DESC, {created} DESC, position DESC"
        keys = ", ".join(_name(key) for key in join_key_columns if key != DUMMY_ENTITY_ID)
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

        Feast's local engine materializes from this, keeping the newest row of every key.
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


def point_in_time(tagged: FeatureView | DataSource) -> str:
    """The rule of time of a view, from its tag or its source's: `bitemporal` unless it says `event-time-only`.

    Raises:
        ConfigurationError: if a tag has another value, or the two contradict each other.
    """
    source = tagged.batch_source if isinstance(tagged, FeatureView) else None
    found = {(each.tags or {}).get(POINT_IN_TIME) for each in (tagged, source) if each} - {None}
    if len(found) > 1 or not found <= {BITEMPORAL, EVENT_TIME_ONLY}:
        raise ConfigurationError(
            f"{tagged.name}: the tag {POINT_IN_TIME} is {BITEMPORAL!r} or {EVENT_TIME_ONLY!r}, and the same on a view "
            f"and its source; found {', '.join(repr(value) for value in sorted(map(str, found)))}."
        )
    return str(found.pop()) if found else BITEMPORAL


def _called(view: FeatureView) -> str:
    return str(view.projection.name_to_use())  # type: ignore[no-untyped-call]  # Feast left this one untyped


def _joined(view: FeatureView, feature_refs: list[str], full_names: bool, rule: str) -> Joined:
    """How a view is joined; its table is named when it is opened."""
    source = view.batch_source
    if source is None:
        raise ConfigurationError(f"The feature view {view.name} has no batch source: expected Parquet files.")
    in_table = {new: old for old, new in source.field_mapping.items()}
    wanted = [name for owner, name in (ref.split(":", 1) for ref in feature_refs) if owner == _called(view)]
    prefix = view.projection.name_alias or view.name
    created = source.created_timestamp_column or ""
    return Joined(
        table="",
        keys=_keys(view),
        event=in_table.get(source.timestamp_field, source.timestamp_field),
        created=in_table.get(created, created),
        features={in_table.get(name, name): f"{prefix}__{name}" if full_names else name for name in wanted},
        ttl=view.ttl,
        event_time_only=rule == EVENT_TIME_ONLY,
    )


def _keys(view: FeatureView) -> dict[str, str]:
    """Column of the entity rows by key column of the view's table."""
    in_table = {new: old for old, new in view.batch_source.field_mapping.items()} if view.batch_source else {}
    renamed = view.projection.join_key_map or {}
    keys = [column.name for column in view.entity_columns if column.name != DUMMY_ENTITY_ID]
    return {in_table.get(key, key): renamed.get(key, key) for key in keys}


def _check_columns(rows: EntityRows, plan: list[Joined], on_demand: list[OnDemandFeatureView]) -> None:
    found = ", ".join(rows.columns)
    keys = {name for view in plan for name in view.keys.values()}
    requested = {name for view in on_demand for name in view.get_request_data_schema()}
    missing = sorted((keys | requested) - set(rows.columns))
    if missing:
        raise ConfigurationError(
            f"The entity rows lack {', '.join(missing)}: expected the keys of the feature views and what on-demand "
            f"views ask for, found {found}."
        )
    hidden = sorted({name for view in plan for name in view.features.values()} & set(rows.columns))
    if hidden:
        raise ConfigurationError(
            f"The features {', '.join(hidden)} would hide columns of the entity rows, found {found}. Rename the "
            "columns, or ask for full_feature_names."
        )


def _needed(
    view: FeatureView, span: tuple[datetime, datetime] | None, since: datetime | None
) -> tuple[datetime | None, datetime]:
    """Which events may count for entity rows of this span."""
    first, last = span or (EPOCH, EPOCH)
    if since is None and view.ttl:
        try:
            since = first - view.ttl
        except OverflowError:
            since = None
    return since, last


def _keys_in_range(
    views: list[FeatureView], rules: dict[str, str], since: datetime, until: datetime
) -> Callable[[SourceFiles], str]:
    """A query of every key that has a usable event in the range, once, at the range's end."""
    keyed = [view for view in views if _keys(view)]
    if len({frozenset(_keys(view).values()) for view in keyed}) > 1:
        raise ConfigurationError(
            f"The feature views {', '.join(view.name for view in keyed)} have different keys: expected entity rows, "
            "found a range of time. Give entity_df, or ask for the views one by one."
        )

    def keys_of(view: FeatureView, files: SourceFiles) -> str:
        join = _joined(view, [], False, rules[_called(view)])
        columns = ", ".join(
            f"{_name(key)} AS {_name(called)}" for key, called in sorted(join.keys.items(), key=_second)
        )
        known = "" if join.event_time_only else join.created
        usable = [_between(join.event, known, since, until), *(f"{_name(key)} IS NOT NULL" for key in join.keys)]
        return (
            f"SELECT DISTINCT {columns} FROM {files.scan(view.batch_source, since, until)} WHERE {' AND '.join(usable)}"
        )

    def query(files: SourceFiles) -> str:
        time = f"{_moment(until)} AS {TIME}"
        if not keyed:
            return f"SELECT {time}"
        return f"SELECT *, {time} FROM ({' UNION '.join(keys_of(view, files) for view in keyed)}) ORDER BY ALL"

    return query


def _second(pair: tuple[str, str]) -> str:
    return pair[1]


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
    """A connection that takes a quarter of the memory and then writes to `folder`, and what it reads."""
    with connect() as connection:
        connection.execute(f"SET memory_limit = '{_memory(config) // 4} B'")
        connection.execute(f"SET temp_directory = '{folder}/spilled'")
        yield connection, SourceFiles(connection, config.repo_path)


@contextmanager
def _explained(source: DataSource) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise ConfigurationError(f"The source {source.name} cannot be read: {' '.join(str(error).split())}") from error


def _memory(config: RepoConfig) -> int:
    return _bytes(str(getattr(config.offline_store, "memory_limit", "2GB")))


def _searched_at_once(config: RepoConfig) -> int:
    """An eighth of the memory: three such parts are alive beside DuckDB's quarter and what is given back."""
    return _memory(config) // 8


def _bytes(size: str) -> int:
    found = _SIZE.fullmatch(size)
    return int(found[1]) * _BYTES[found[2]] if found else 0


def _columns(keys: list[str], features: list[str], event: str, created: str | None) -> str:
    names = [key for key in keys if key != DUMMY_ENTITY_ID]
    dummy = [f"'' AS {_name(DUMMY_ENTITY_ID)}"] if DUMMY_ENTITY_ID in keys else []
    return ", ".join([*map(_name, [*names, *features, event, *([created] if created else [])]), *dummy])


def _usable(source: DataSource, event: str, created: str | None, start: datetime | None, end: datetime | None) -> str:
    return _between(event, "" if point_in_time(source) == EVENT_TIME_ONLY else created or "", start, end)


def _between(event: str, created: str, start: datetime | None, end: datetime | None) -> str:
    bounds = [f"{_utc(event)} >= {_moment(start)}"] if start else []
    bounds += [f"{_utc(event)} <= {_moment(end)}", f"{_known(event, created)} <= {_moment(end)}"] if end else []
    return " AND ".join(bounds) or "true"


def _known(event: str, created: str | None) -> str:
    return f"coalesce({_utc(created)}, {_utc(event)})" if created else _utc(event)


def _moment(moment: datetime) -> str:
    return f"TIMESTAMPTZ '{moment.isoformat()}'"


def _utc(column: str) -> str:
    return f"{_name(column)}::TIMESTAMPTZ"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
