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
from datetime import UTC, datetime
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
from gatehouse.features.database import connect, quoted, time_literal
from gatehouse.features.point_in_time.asof_join import Joined, asof_batches
from gatehouse.features.point_in_time.entity_rows import EPOCH, TIME, EntityRows
from gatehouse.features.point_in_time.retrieval_job import AsofRetrievalJob, AsofRetrievalMetadata
from gatehouse.features.point_in_time.source_files import SourceFiles
from gatehouse.runtime import limits
from gatehouse.store.hidden_values import said_by

POINT_IN_TIME = "gatehouse.point_in_time"
"""Tag of a view or its source that says which time rule holds."""
BITEMPORAL, EVENT_TIME_ONLY = "bitemporal", "event-time-only"
_BEGINNING = datetime.min.replace(tzinfo=UTC)
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

        `feature_refs` is `<view>:<feature>` of every wanted feature. `entity_df` is a frame, or a DuckDB query, which
        runs once; its time is the column `event_timestamp`, else the only timestamp. None for every key with an event
        in the range, each once, at the range's end. With `full_feature_names`, features are called
        `<view>__<feature>`. `options` may have `start_date` and `end_date`, for use without entity rows, and
        `filter_by_created_timestamp`, which makes an `event-time-only` view bitemporal.

        Raises:
            ConfigurationError: if the entity rows lack a key, the time or an input of an on-demand view; if a feature
                would hide a column; if a source cannot be read; or if a tag has an unknown value.
        """
        strict = bool(options.get("filter_by_created_timestamp"))
        rules = {_name(view): BITEMPORAL if strict else _rule(view) for view in feature_views}
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
        plan = [_joined(view, feature_refs, full_feature_names, rules[_name(view)]) for view in feature_views]
        _check_columns(rows, plan, on_demand)

        def tables(folder: Path) -> Iterator[pa.Table]:
            table, span = rows.table(), rows.span()
            with _opened(config, folder) as (connection, files):
                first, last = span or (EPOCH, EPOCH)
                joins = []
                for view, join in zip(feature_views, plan, strict=True):
                    oldest = first - view.ttl if view.ttl and view.ttl < first - _BEGINNING else None
                    joins.append(replace(join, table=files.scan(view.batch_source, since or oldest, last)))
                # An eighth of the memory: three such parts exist besides DuckDB's quarter and the returned part.
                yield from asof_batches(connection, table, rows.time, joins, folder, _memory(config) // 8)

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
        created = _known_at(timestamp_field, created_timestamp_column)
        order = f"{_in_utc(timestamp_field)} DESC, {created} DESC, position DESC"
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
        """Raise a ConfigurationError: feature logs belong into the artifact store, not beside the feature tables."""
        raise ConfigurationError("AsofOfflineStore does not write feature logs; publish them to the artifact store.")

    def validate_data_source(self, config: RepoConfig, data_source: DataSource) -> None:
        """Open the source. Raises ConfigurationError if it cannot be read or lacks its time columns."""
        names = {name for name, _ in self.get_table_column_names_and_types_from_data_source(config, data_source)}
        mapped = {new: old for old, new in data_source.field_mapping.items()}
        for column in (data_source.timestamp_field, data_source.created_timestamp_column):
            if column and mapped.get(column, column) not in names:
                raise ConfigurationError(
                    f"The source {data_source.name}: expected the column {column}, found {', '.join(sorted(names))}."
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


def _bytes(size: str) -> int:
    match = _SIZE.fullmatch(size)
    return int(match[1]) * _BYTES[match[2]] if match else 0


def _columns(keys: list[str], features: list[str], event: str, created: str | None) -> str:
    names = [key for key in keys if key != DUMMY_ENTITY_ID]
    dummy = [f"'' AS {quoted(DUMMY_ENTITY_ID)}"] if DUMMY_ENTITY_ID in keys else []
    return ", ".join([*map(quoted, [*names, *features, event, *([created] if created else [])]), *dummy])


def _usable(source: DataSource, event: str, created: str | None, start: datetime | None, end: datetime | None) -> str:
    return _between(event, "" if _rule(source) == EVENT_TIME_ONLY else created or "", start, end)


def _between(event: str, created: str, start: datetime | None, end: datetime | None) -> str:
    """SQL condition for rows with an event in [start, end] that were known at `end`."""
    bounds = [f"{_in_utc(event)} >= {time_literal(start)}"] if start else []
    if end:
        bounds += [f"{time} <= {time_literal(end)}" for time in (_in_utc(event), _known_at(event, created))]
    return " AND ".join(bounds) or "true"


def _known_at(event: str, created: str | None) -> str:
    """SQL for the time when a row was created; its event time where there is no created column."""
    return f"coalesce({_in_utc(created)}, {_in_utc(event)})" if created else _in_utc(event)


def _in_utc(column: str) -> str:
    """SQL for a column as a time with a zone; a time without a zone is UTC."""
    return f"{quoted(column)}::TIMESTAMPTZ"


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


def _joined(view: FeatureView, feature_refs: list[str], full_names: bool, rule: str) -> Joined:
    """How a view is joined; its table is set when it is opened."""
    source = view.batch_source
    if source is None:
        raise ConfigurationError(f"The feature view {view.name} has no batch source: expected Parquet files.")
    in_table = {new: old for old, new in source.field_mapping.items()}
    names = [name for owner, name in (ref.split(":", 1) for ref in feature_refs) if owner == _name(view)]
    prefix = view.projection.name_alias or view.name
    created = source.created_timestamp_column or ""
    return Joined(
        table="",
        keys=_keys(view),
        event=in_table.get(source.timestamp_field, source.timestamp_field),
        created=in_table.get(created, created),
        features={in_table.get(name, name): f"{prefix}__{name}" if full_names else name for name in names},
        ttl=view.ttl,
        event_time_only=rule == EVENT_TIME_ONLY,
    )


def _keys(view: FeatureView) -> dict[str, str]:
    """For each key column of the view's table, the column of the entity rows."""
    in_table = {new: old for old, new in view.batch_source.field_mapping.items()} if view.batch_source else {}
    renamed = view.projection.join_key_map or {}
    keys = [column.name for column in view.entity_columns if column.name != DUMMY_ENTITY_ID]
    return {in_table.get(key, key): renamed.get(key, key) for key in keys}


def _check_columns(rows: EntityRows, plan: list[Joined], on_demand: list[OnDemandFeatureView]) -> None:
    """Refuse entity rows that lack a key or a request value, or have a column with the name of a feature."""
    found = ", ".join(rows.columns)
    keys = {name for view in plan for name in view.keys.values()}
    requested = {name for view in on_demand for name in view.get_request_data_schema()}
    if missing := sorted((keys | requested) - set(rows.columns)):
        raise ConfigurationError(
            f"The entity rows lack {', '.join(missing)}: expected the keys of the feature views and the inputs of "
            f"on-demand views, found {found}."
        )
    if hidden := sorted({name for view in plan for name in view.features.values()} & set(rows.columns)):
        raise ConfigurationError(
            f"The features {', '.join(hidden)} would hide columns of the entity rows, found {found}. Rename the "
            "columns, or ask for full_feature_names."
        )


def _keys_in_range(
    views: list[FeatureView], rules: dict[str, str], since: datetime, until: datetime
) -> Callable[[SourceFiles], str]:
    """A query that gives every key with a usable event in the range once, at the range's end."""
    keyed = [view for view in views if _keys(view)]
    if len({frozenset(_keys(view).values()) for view in keyed}) > 1:
        raise ConfigurationError(
            f"The feature views {', '.join(view.name for view in keyed)} have different keys: expected entity rows, "
            "found a range of time. Give entity_df, or ask for the views one by one."
        )

    def query(files: SourceFiles) -> str:
        selects = []
        for view in keyed:
            join = _joined(view, [], False, rules[_name(view)])
            pairs = sorted(join.keys.items(), key=lambda pair: pair[1])
            columns = ", ".join(f"{quoted(key)} AS {quoted(name)}" for key, name in pairs)
            usable = [_between(join.event, "" if join.event_time_only else join.created, since, until)]
            usable += [f"{quoted(key)} IS NOT NULL" for key in join.keys]
            scan = files.scan(view.batch_source, since, until)
            selects.append(f"SELECT DISTINCT {columns} FROM {scan} WHERE {' AND '.join(usable)}")
        time = f"{time_literal(until)} AS {TIME}"
        return f"SELECT *, {time} FROM ({' UNION '.join(selects)}) ORDER BY ALL" if keyed else f"SELECT {time}"

    return query
