"""Describes a Feast view for the join: its keys, table columns, rule of time, and the events it needs."""

from collections.abc import Callable
from datetime import UTC, datetime

from feast import FeatureView, OnDemandFeatureView
from feast.data_source import DataSource
from feast.feature_view import DUMMY_ENTITY_ID

from gatehouse.errors import ConfigurationError
from gatehouse.features.database import quoted, time_literal
from gatehouse.features.point_in_time.entity_rows import EPOCH, TIME, EntityRows
from gatehouse.features.point_in_time.source_files import SourceFiles
from gatehouse.features.point_in_time.view_join import Joined

POINT_IN_TIME = "gatehouse.point_in_time"
BITEMPORAL, EVENT_TIME_ONLY = "bitemporal", "event-time-only"
_BEGINNING = datetime.min.replace(tzinfo=UTC)


def point_in_time(tagged: FeatureView | DataSource) -> str:
    """The time rule of a view, from its tag or its source's tag: `bitemporal`, or `event-time-only` where it says so.

    Raises:
        ConfigurationError: if a tag has another value, or the two tags differ.
    """
    source = tagged.batch_source if isinstance(tagged, FeatureView) else None
    found = {(each.tags or {}).get(POINT_IN_TIME) for each in (tagged, source) if each} - {None}
    if len(found) > 1 or not found <= {BITEMPORAL, EVENT_TIME_ONLY}:
        raise ConfigurationError(
            f"{tagged.name}: expected the tag {POINT_IN_TIME} to be {BITEMPORAL!r} or {EVENT_TIME_ONLY!r}, with the "
            f"same value on a view and its source; found {', '.join(repr(value) for value in sorted(map(str, found)))}."
        )
    return str(found.pop()) if found else BITEMPORAL


def called(view: FeatureView) -> str:
    """The name under which feature references use the view."""
    return str(view.projection.name_to_use())  # type: ignore[no-untyped-call]  # Feast left this one untyped


def joined_view(view: FeatureView, feature_refs: list[str], full_names: bool, rule: str) -> Joined:
    """How a view is joined; its table name is set when it is opened.

    Raises:
        ConfigurationError: if the view has no batch source.
    """
    source = view.batch_source
    if source is None:
        raise ConfigurationError(f"The feature view {view.name} has no batch source: expected Parquet files.")
    in_table = {new: old for old, new in source.field_mapping.items()}
    wanted = [name for owner, name in (ref.split(":", 1) for ref in feature_refs) if owner == called(view)]
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
    """For each key column of the view's table, the column of the entity rows."""
    in_table = {new: old for old, new in view.batch_source.field_mapping.items()} if view.batch_source else {}
    renamed = view.projection.join_key_map or {}
    keys = [column.name for column in view.entity_columns if column.name != DUMMY_ENTITY_ID]
    return {in_table.get(key, key): renamed.get(key, key) for key in keys}


def check_columns(rows: EntityRows, plan: list[Joined], on_demand: list[OnDemandFeatureView]) -> None:
    """Check the names of the entity rows' columns.

    Raises:
        ConfigurationError: if a key or an input of an on-demand view is missing, or a feature would hide a column.
    """
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


def needed_span(
    view: FeatureView, span: tuple[datetime, datetime] | None, since: datetime | None
) -> tuple[datetime | None, datetime]:
    """The span of events that can count for entity rows in this time span."""
    first, last = span or (EPOCH, EPOCH)
    if since is None and view.ttl and view.ttl < first - _BEGINNING:
        since = first - view.ttl
    return since, last


def keys_in_range(
    views: list[FeatureView], rules: dict[str, str], since: datetime, until: datetime
) -> Callable[[SourceFiles], str]:
    """A query that gives every key with a usable event in the range once, at the range's end.

    Raises:
        ConfigurationError: if the views have different keys.
    """
    keyed = [view for view in views if _keys(view)]
    if len({frozenset(_keys(view).values()) for view in keyed}) > 1:
        raise ConfigurationError(
            f"The feature views {', '.join(view.name for view in keyed)} have different keys: expected entity rows, "
            "found a range of time. Give entity_df, or ask for the views one by one."
        )

    def keys_of(view: FeatureView, files: SourceFiles) -> str:
        join = joined_view(view, [], False, rules[called(view)])
        columns = ", ".join(
            f"{quoted(key)} AS {quoted(called)}" for key, called in sorted(join.keys.items(), key=_second)
        )
        known = "" if join.event_time_only else join.created
        usable = [between(join.event, known, since, until), *(f"{quoted(key)} IS NOT NULL" for key in join.keys)]
        return (
            f"SELECT DISTINCT {columns} FROM {files.scan(view.batch_source, since, until)} WHERE {' AND '.join(usable)}"
        )

    def query(files: SourceFiles) -> str:
        time = f"{time_literal(until)} AS {TIME}"
        if not keyed:
            return f"SELECT {time}"
        return f"SELECT *, {time} FROM ({' UNION '.join(keys_of(view, files) for view in keyed)}) ORDER BY ALL"

    return query


def _second(pair: tuple[str, str]) -> str:
    return pair[1]


def between(event: str, created: str, start: datetime | None, end: datetime | None) -> str:
    """SQL condition for rows with an event in [start, end] that were known at `end`."""
    bounds = [f"{in_utc(event)} >= {time_literal(start)}"] if start else []
    bounds += (
        [f"{in_utc(event)} <= {time_literal(end)}", f"{known_at(event, created)} <= {time_literal(end)}"] if end else []
    )
    return " AND ".join(bounds) or "true"


def known_at(event: str, created: str | None) -> str:
    """SQL for the time when a row was created; its event time where there is no created column."""
    return f"coalesce({in_utc(created)}, {in_utc(event)})" if created else in_utc(event)


def in_utc(column: str) -> str:
    """SQL for a column as a time with a zone; a time without a zone is UTC."""
    return f"{quoted(column)}::TIMESTAMPTZ"
