"""Materialization: writes what became known since the last run to the online store, which also keeps the state.

A run looks at the keys with rows that became known after the settled rows of the last run, and at the keys that the
store notes as provisional: the next table may replace their rows, or they were written on their own. For each of these
keys it writes the newest fresh row of the table, or removes the stored row where the table has none. Every run is a
generation, and its rows replace those of earlier generations.

This is right only while settled rows do not change and the last run was completed. So the store keeps a digest of the
settled rows. If the feature table gives another digest (another definition, a changed static table, removed rows), or
if another run was begun and not completed, the whole view is written, and rows of earlier generations are removed.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa

from gatehouse.errors import StoreError
from gatehouse.features.database import connect, rows_of
from gatehouse.online.store import FOREVER, NEVER, OnlineStore, OnlineView, epoch_us
from gatehouse.store.database import quoted

logger = logging.getLogger(__name__)

STEP = 1 << 15  # Rows between two progress messages.


@dataclass(frozen=True)
class Materialized:
    """The result for one view.

    Attributes:
        rows: Number of keys to write or to remove.
        changed: Number of rows that changed the content of the store.
        since: The watermark before the run, in microseconds since 1970.
    """

    view: str
    rows: int
    changed: int
    since: int | None
    rewritten: bool


def materialize_views(
    store: OnlineStore,
    views: Sequence[OnlineView],
    tables: Mapping[str, Sequence[Path]],
    as_of: datetime,
    *,
    settled: Mapping[str, datetime] | None = None,
    rewrite: bool = False,
    step: int = STEP,
    reference: str = "",
) -> list[Materialized]:
    """Write everything that was known at `as_of` to the online store.

    `settled` has by view the time up to which the rows of its table are settled: the next table may replace rows known
    from then on. All rows of a view that is not named are settled.

    Raises StoreError if the store cannot be reached, is already at a later time, or another run writes the view.
    """
    results = []
    with connect() as connection:
        for view in views:
            open_rows(connection, view, tables[view.name])
            until = epoch_us(as_of)
            if settled and view.name in settled:
                until = min(until, epoch_us(settled[view.name]) - 1)
            results.append(_materialize(connection, store, view, as_of, until, rewrite, step, reference))
    return results


def _materialize(
    connection: duckdb.DuckDBPyConnection,
    store: OnlineStore,
    view: OnlineView,
    as_of: datetime,
    settled: int,
    rewrite: bool,
    step: int,
    reference: str,
) -> Materialized:
    moment = epoch_us(as_of)
    while True:
        before = store.state(view.name)
        if before.known is not None and before.known > moment and not rewrite:
            watermark = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=before.known)
            raise StoreError(
                f"The online store holds {view.name} as known at {watermark.isoformat()}, which is after this run's "
                f"as_of {as_of.isoformat()}. To go back, run with rewrite set to true."
            )
        past, past_before = (_digest(connection, view, time) for time in (settled, before.settled))
        changed = before.known is not None and past_before != before.past
        whole = rewrite or changed or before.last > before.generation
        generation = before.last + 1
        # The swap fails where another run began meanwhile.
        if store.swap(view.name, before, replace(before, last=generation)):
            break
    if changed:
        logger.info("%s: settled rows changed; the whole view is written", view.name)
    since = NEVER if whole or before.settled is None else before.settled
    count = _select(connection, view, since, store.provisional(view), as_of)
    replaced = 0
    for start in range(0, count, step):
        if store.state(view.name).last != generation:
            break
        rows: pa.Table = connection.sql(f"FROM features.to_write LIMIT {step} OFFSET {start}").to_arrow_table()
        replaced += store.write(view, rows, generation, FOREVER if whole else moment, settled + 1)
        logger.info("%s: %d of %d rows", view.name, start + rows.num_rows, count)
    if whole and store.state(view.name).last == generation:
        store.sweep(view, generation, sorted({*before.features} - {*view.features}))
    while (state := store.state(view.name)).last == generation:
        after = replace(
            state,
            generation=generation,
            base=generation if whole else state.base,
            known=moment,
            settled=settled,
            past=past,
            features=view.features,
            tables=reference,
        )
        if store.swap(view.name, state, after):
            return Materialized(view.name, count, replaced, before.known, whole)
    # The other run saw that this one was not completed, and writes the whole view as a later generation.
    store.sweep(view, state.base)
    raise StoreError(
        f"Another run began to write the view {view.name} to the online store meanwhile. Wait until it has ended, and "
        "run again."
    )


def open_rows(connection: duckdb.DuckDBPyConnection, view: OnlineView, files: Sequence[Path]) -> None:
    """Make the view's rows readable as `features.rows`, with the columns by which asof_join orders them."""
    event = f"epoch_us({quoted(view.event)}::TIMESTAMPTZ)"
    created = f"coalesce(epoch_us({quoted(view.created)}::TIMESTAMPTZ), {event})" if view.created else event
    present = " AND ".join(f"{quoted(column)} IS NOT NULL" for column in (*view.keys, view.event))
    connection.execute(
        f"CREATE OR REPLACE VIEW features.rows AS SELECT *, {event} AS __event, {created} AS __created, "
        f"greatest(__event, __created) AS __known, row_number() OVER () AS __position "
        f"FROM {rows_of(files)} WHERE {present}"
    )


def _digest(connection: duckdb.DuckDBPyConnection, view: OnlineView, until: int | None) -> str:
    """A digest of the rows known at a time, with columns, types and time to live; the order of rows does not count."""
    columns = ", ".join(map(quoted, (*view.keys, *view.features, "__event", "__created")))
    types = connection.execute(f"DESCRIBE SELECT {columns} FROM features.rows").fetchall()
    rows = connection.execute(
        f"SELECT count(*), sum(hash({columns})::HUGEINT) FROM features.rows "
        f"WHERE __known <= {NEVER if until is None else until}"
    ).fetchall()
    return hashlib.sha256(f"{[row[:2] for row in types]} {view.ttl} {rows}".encode()).hexdigest()


def _select(
    connection: duckdb.DuckDBPyConnection, view: OnlineView, since: int, provisional: pa.Table, as_of: datetime
) -> int:
    """Create the table `features.to_write`: a row per key to write, without an event where the key has no fresh row.

    The keys are those with rows known after `since`, and the provisional ones; their number is returned.
    """
    keys = ", ".join(map(quoted, view.keys))
    names = dict.fromkeys((*view.keys, view.event, *([view.created] if view.created else []), *view.features))
    columns = ", ".join(map(quoted, names))
    visible = f"SELECT * FROM features.rows WHERE __known <= {epoch_us(as_of)}"
    connection.register("provisional", provisional)
    connection.execute(
        f"CREATE OR REPLACE TABLE features.to_write AS WITH touched AS (SELECT {keys} FROM ({visible}) "
        f"WHERE __known > {since} UNION SELECT {keys} FROM provisional), newest AS (SELECT {columns} FROM ({visible}) "
        f"SEMI JOIN touched USING ({keys}) WHERE __event >= {view.oldest(as_of)} QUALIFY row_number() OVER "
        f"(PARTITION BY {keys} ORDER BY __event DESC, __created DESC, __position DESC) = 1) "
        f"SELECT {columns} FROM touched LEFT JOIN newest USING ({keys}) ORDER BY {keys}"
    )
    (count,) = connection.execute("SELECT count(*) FROM features.to_write").fetchall()[0]
    return int(count)
