"""The point-in-time join: for every entity row the newest feature row that was known at its time. DuckDB, no Feast.

A feature row may be used at time t only if it is about the past (event <= t) and was known then (created <= t, where a
view has a created timestamp). Of those the newest event wins, among equal events the newest created, among full ties
the last row of the table. The row counts as long as it is fresh: t - event <= ttl, both ends included. An entity row
without a usable feature row keeps nulls; so does one whose key or time is null. Every entity row comes out once, in
order.

A correction that was created later hides behind the older row it corrects until it is known. That needs no second
look: a row is usable from `known = max(event, created)` on, so the best row usable at t is the running maximum of the
order (event, created, position) along `known`, and one ASOF join on `known` finds it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import duckdb
import pyarrow as pa

ROW = "__row"


@dataclass(frozen=True)
class Joined:
    """One view of a join.

    Attributes:
        table: Name of its table in the connection, or any SQL that can follow FROM.
        keys: Column of the entity rows by key column of the table; empty where a view has no entity.
        event: Column with the event timestamp.
        features: Output name by feature column.
        created: Column with the created timestamp; empty for none. A null in it counts as known at the event.
        ttl: How long a row stays fresh; None or zero for ever.
    """

    table: str
    keys: dict[str, str]
    event: str
    features: dict[str, str] = field(default_factory=dict)
    created: str = ""
    ttl: timedelta | None = None


def asof_join(
    connection: duckdb.DuckDBPyConnection, entity_rows: pa.Table, time: str, views: Sequence[Joined]
) -> pa.Table:
    """Join the features of `views` to `entity_rows`.

    Args:
        connection: Where the tables of the views can be read; its time zone must be UTC.
        entity_rows: Any columns, among them the key columns and `time`.
        time: Column with the time of each entity row; a time without a zone is UTC.
        views: What to join; output names must not clash.

    Returns:
        The columns of `entity_rows`, untouched and in order, then the features in the order of `views`.
    """
    numbered = entity_rows.append_column(ROW, pa.array(range(entity_rows.num_rows), pa.int64()))
    connection.register("__entity_rows", numbered)
    result = entity_rows
    try:
        for view in views:
            found = connection.sql(_query(view, time)).to_arrow_table()
            for name in view.features.values():
                result = result.append_column(name, found.column(name))
    finally:
        connection.unregister("__entity_rows")
    return result


def _query(view: Joined, time: str) -> str:
    keys = [f"k{number}" for number in range(len(view.keys))]
    partition = f"PARTITION BY {', '.join(keys)}" if keys else ""
    event = f"{_name(view.event)}::TIMESTAMPTZ"
    created = f"coalesce({_name(view.created)}::TIMESTAMPTZ, {event})" if view.created else event
    columns = [
        *(f"{_name(column)} AS {key}" for column, key in zip(view.keys, keys, strict=True)),
        f"{event} AS event",
        f"greatest({event}, {created}) AS known",
        f"row_number() OVER (ORDER BY {event}, {created}, position) AS rank",
        *(f"{_name(column)} AS f{number}" for number, column in enumerate(view.features)),
    ]
    wanted = [f"{_name(column)} AS {key}" for column, key in zip(view.keys.values(), keys, strict=True)]
    matches = [f"wanted.{key} = best.{key}" for key in keys]
    microseconds = int(view.ttl / timedelta(microseconds=1)) if view.ttl else 0
    fresh = f"AND wanted.time - chosen.event <= to_microseconds({microseconds})" if microseconds else ""
    features = [f"chosen.f{number} AS {_name(name)}" for number, name in enumerate(view.features.values())]
    return f"""
        WITH versions AS MATERIALIZED (
            SELECT {", ".join(columns)}
            FROM (SELECT *, row_number() OVER () AS position FROM {view.table})
            WHERE {_name(view.event)} IS NOT NULL
        ),
        best AS (SELECT {", ".join([*keys, "known"])}, max(rank)
            OVER ({partition} ORDER BY known) AS rank FROM versions),
        wanted AS (SELECT {", ".join([*wanted, f"{_name(time)}::TIMESTAMPTZ AS time", ROW])} FROM __entity_rows),
        matched AS (
            SELECT wanted.{ROW}, wanted.time, best.rank
            FROM wanted ASOF LEFT JOIN best ON {" AND ".join([*matches, "wanted.time >= best.known"])}
        )
        SELECT {", ".join(features)}
        FROM matched AS wanted LEFT JOIN versions AS chosen ON chosen.rank = wanted.rank {fresh}
        ORDER BY wanted.{ROW}
    """


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
