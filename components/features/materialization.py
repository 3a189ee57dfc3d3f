"""Materialization: what became known since the watermark goes to the online store; progress and state live there too.

A view's rows are written by known time, max(event, created): those known after the watermark and up to `as_of`, so a
late row about an older event arrives as well. Of a key only the newest is written, and none that is expired by then.

The watermark is worth something only if what was known up to it is still the same. So the store keeps a digest of
those rows. Where the feature table gives another one (another definition, a static table that changed, rows that were
removed), the view is written again as a new generation, and what is left of earlier ones is removed.

Every step is safe to repeat and to run twice at once: rows are compared in the store, and the state changes only if it
is what it was when it was read.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa

from gatehouse.components.features.compute import connect
from gatehouse.components.features.online import OnlineStore, OnlineView, State, epoch_us
from gatehouse.errors import StoreError

logger = logging.getLogger(__name__)

STEP = 1 << 15  # Rows between two lines of progress.
_NEVER = -(2**62)
_ATTEMPTS = 5


@dataclass(frozen=True)
class Materialized:
    """What was done for one view.

    Attributes:
        view: Its name.
        rows: Rows that were to be written.
        written: Rows that were sent; less than `rows` where an earlier run was killed on the way.
        changed: Rows that changed what is held.
        since: The watermark before, in microseconds since 1970; None where there was none.
        rewritten: Whether the view was written from the beginning.
    """

    view: str
    rows: int
    written: int
    changed: int
    since: int | None
    rewritten: bool


@dataclass(frozen=True)
class _Plan:
    """What to write, where: `before` is the state of the view when this was decided."""

    before: State
    rewrite: bool
    past: str
    generation: int
    target: str


def materialize_views(
    store: OnlineStore,
    views: Sequence[OnlineView],
    tables: Mapping[str, Sequence[Path]],
    as_of: datetime,
    *,
    rewrite: bool = False,
    step: int = STEP,
) -> list[Materialized]:
    """Bring the online store up to what was known at `as_of`.

    Args:
        store: The online store.
        views: What to write.
        tables: Parquet files by view.
        as_of: The time, with its zone.
        rewrite: Write all from the beginning, also where the store is at a later time.
        step: Rows between two lines of progress.

    Raises:
        StoreError: if the store cannot be reached, or was brought to a later time before.
    """
    with connect() as connection:
        return [_materialize(connection, store, view, tables[view.name], as_of, rewrite, step) for view in views]


def _materialize(
    connection: duckdb.DuckDBPyConnection,
    store: OnlineStore,
    view: OnlineView,
    files: Sequence[Path],
    as_of: datetime,
    rewrite: bool,
    step: int,
) -> Materialized:
    open_rows(connection, view, files)
    for _ in range(_ATTEMPTS):
        plan = _begin(connection, store, view, epoch_us(as_of), rewrite)
        since = None if plan.rewrite else plan.before.known
        count = _select(connection, view, since, as_of)
        done = plan.before.done if plan.before.target == plan.target else 0
        if done:
            logger.info("%s: goes on after %d of %d rows", view.name, done, count)
        changed = _write(connection, store, view, plan, done, count, step)
        if _complete(store, view, plan, epoch_us(as_of)):
            return Materialized(view.name, count, count - done, changed, plan.before.known, plan.rewrite)
        logger.info("%s: another run changed the online store meanwhile; looking again", view.name)
    raise StoreError(
        f"The view {view.name} was rewritten by other runs {_ATTEMPTS} times meanwhile. Run one at a time."
    )


def open_rows(connection: duckdb.DuckDBPyConnection, view: OnlineView, files: Sequence[Path]) -> None:
    """Make the view's rows readable as `features.rows`, with what asof_join orders by."""
    listed = ", ".join("'" + str(path).replace("'", "''") + "'" for path in files)
    event = f"epoch_us({quoted(view.event)}::TIMESTAMPTZ)"
    created = f"coalesce(epoch_us({quoted(view.created)}::TIMESTAMPTZ), {event})" if view.created else event
    present = " AND ".join(f"{quoted(column)} IS NOT NULL" for column in (*view.keys, view.event))
    connection.execute(
        f"CREATE OR REPLACE VIEW features.rows AS SELECT *, {event} AS __event, {created} AS __created, "
        f"greatest(__event, __created) AS __known, row_number() OVER () AS __position "
        f"FROM read_parquet([{listed}]) WHERE {present}"
    )


def _begin(
    connection: duckdb.DuckDBPyConnection, store: OnlineStore, view: OnlineView, as_of: int, rewrite: bool
) -> _Plan:
    """Decide what to write, and note it in the store; a run that was killed on the same is gone on with."""
    while True:
        state = store.state(view.name)
        if state.known is not None and state.known > as_of and not rewrite:
            raise StoreError(
                f"The online store holds {view.name} as known at {_time(state.known)}, which is after this run's "
                f"as_of {_time(as_of)}. To go back, run with rewrite set to true."
            )
        now, then = _digests(connection, view, as_of, state.known)
        changed = state.known is not None and then != state.past
        # A rewrite that was begun and not completed left rows that win over all earlier generations.
        fresh = rewrite or changed or state.last > state.generation
        parts = [now, str(as_of), *([] if fresh else [str(state.known), str(state.generation)])]
        target = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        if state.target == target:
            return _Plan(state, fresh, now, state.writing, target)
        if changed:
            logger.info("%s: what was known before is not what it was; it is written from the beginning", view.name)
        generation = state.last + 1 if fresh else state.generation
        after = replace(state, last=max(state.last, generation), target=target, writing=generation, done=0)
        if store.swap(view.name, state, after):
            return _Plan(replace(after, done=0), fresh, now, generation, target)


def _digests(
    connection: duckdb.DuckDBPyConnection, view: OnlineView, as_of: int, watermark: int | None
) -> tuple[str, str]:
    """Digests of the rows known at `as_of` and at the watermark: the same rows in any order, the same digest."""
    columns = (*view.keys, *view.features, "__event", "__created")
    types = connection.execute(f"DESCRIBE SELECT {', '.join(map(quoted, columns))} FROM features.rows").fetchall()
    shape = f"{[row[:2] for row in types]} {view.ttl}"
    hashed = f"hash({', '.join(map(quoted, columns))})::HUGEINT"
    found = connection.execute(
        f"SELECT count(*) FILTER (__known <= $1), sum({hashed}) FILTER (__known <= $1), "
        f"count(*) FILTER (__known <= $2), sum({hashed}) FILTER (__known <= $2) FROM features.rows",
        [as_of, _NEVER if watermark is None else watermark],
    ).fetchall()[0]
    now, then = (hashlib.sha256(f"{shape} {pair}".encode()).hexdigest() for pair in (found[:2], found[2:]))
    return now, then


def _select(connection: duckdb.DuckDBPyConnection, view: OnlineView, since: int | None, as_of: datetime) -> int:
    """Lay what is to be written in the table `features.wanted`, in order of the keys; returns its rows."""
    columns = [*view.keys, view.event, *([view.created] if view.created else []), *view.features]
    keys = ", ".join(map(quoted, view.keys))
    partition = f"PARTITION BY {keys} " if keys else ""
    connection.execute(
        f"CREATE OR REPLACE TABLE features.wanted AS SELECT {', '.join(map(quoted, columns))} FROM features.rows "
        f"WHERE __known > {_NEVER if since is None else since} AND __known <= {epoch_us(as_of)} "
        f"AND __event >= {view.oldest(as_of)} QUALIFY row_number() OVER "
        f"({partition}ORDER BY __event DESC, __created DESC, __position DESC) = 1 ORDER BY {keys or '1'}"
    )
    return int(connection.execute("SELECT count(*) FROM features.wanted").fetchall()[0][0])


def _write(
    connection: duckdb.DuckDBPyConnection,
    store: OnlineStore,
    view: OnlineView,
    plan: _Plan,
    done: int,
    count: int,
    step: int,
) -> int:
    changed = 0
    while done < count:
        rows: pa.Table = connection.sql(f"FROM features.wanted LIMIT {step} OFFSET {done}").to_arrow_table()
        changed += store.write(view, rows, plan.generation)
        done += rows.num_rows
        logger.info("%s: %d of %d rows", view.name, done, count)
        _note(store, view, plan.target, done)
    return changed


def _note(store: OnlineStore, view: OnlineView, target: str, done: int) -> None:
    """Note how far the writing of `target` is; where another run writes something else by now, its note is kept."""
    while (state := store.state(view.name)).target == target and state.done < done:
        if store.swap(view.name, state, replace(state, done=done)):
            return


def _complete(store: OnlineStore, view: OnlineView, plan: _Plan, as_of: int) -> bool:
    """Set the watermark. False where a rewrite or a run with other rows was faster: look again."""
    if plan.rewrite:
        dropped = sorted({*plan.before.features} - {*view.features})
        store.sweep(view, plan.generation, dropped)
    while True:
        state = store.state(view.name)
        if state.generation > plan.generation:
            store.sweep(view, state.generation)
            return False
        known = state.known if state.generation == plan.generation else None
        if known is not None and known >= as_of:
            if known == as_of and state.past != plan.past:
                return False
            done = state
        else:
            done = replace(state, generation=plan.generation, known=as_of, past=plan.past, features=view.features)
        if state.target == plan.target:
            done = replace(done, target="", done=0)
        if done == state or store.swap(view.name, state, done):
            return True


def _time(moment: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)).isoformat()


def quoted(column: str) -> str:
    """A column's name as SQL writes it."""
    return '"' + column.replace('"', '""') + '"'
