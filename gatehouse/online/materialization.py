"""Materialization: writes rows that became known since the last run to the online store, which also keeps the state.

A run writes the rows of a view that became known after the settled rows of the last run, up to `as_of`. A row is known
from max(event, created) on, so a late row about an older event is written too. For each key only the newest row is
written, and no expired row.

The newest rows of a table are provisional: the next table replaces them. It also replaces rows that were pushed in
between. The store keeps the keys of both kinds. For these keys a run writes the newest row of the table, whatever the
store holds.

This is right only while the settled rows do not change. So the store keeps a digest of them. A view is written again
as a new generation in two cases: the feature table gives another digest (another definition, a changed static table,
removed rows), or a killed run wrote other rows. Rows of earlier generations are removed afterwards.

Every step can be repeated, and two runs can work at once: the store compares rows when it writes, and it changes the
state only if the state is still the one that was read.
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
from gatehouse.features.database import connect, quoted, rows_of
from gatehouse.online.store import NEVER, OnlineStore, OnlineView, State, epoch_us

logger = logging.getLogger(__name__)

STEP = 1 << 15  # Rows between two progress messages.
_ATTEMPTS = 5


@dataclass(frozen=True)
class Materialized:
    """The result for one view.

    Attributes:
        view: Its name.
        rows: Number of rows to write.
        written: Number of rows sent; less than `rows` where a killed run had sent the first of them.
        changed: Number of rows that changed the content of the store.
        since: The watermark before the run, in microseconds since 1970; None where there was none.
        rewritten: Whether all rows of the view were written.
    """

    view: str
    rows: int
    written: int
    changed: int
    since: int | None
    rewritten: bool


@dataclass(frozen=True)
class _Plan:
    """What a run writes for one view.

    Attributes:
        before: The state of the view when the plan was made.
        rewrite: Whether all rows of the view are written.
        as_of: The watermark afterwards, in microseconds since 1970.
        settled: Time up to which rows are settled afterwards, in microseconds since 1970.
        past: Digest of these settled rows.
        generation: The generation of the rows.
        target: Digest of the rows to write and of the state before.
        tables: Reference of the feature tables.
    """

    before: State
    rewrite: bool
    as_of: int
    settled: int
    past: str
    generation: int
    target: str
    tables: str


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

    Args:
        store: The online store.
        views: The views to write.
        tables: Parquet files by view.
        as_of: The time, with its zone.
        settled: By view, the time up to which the rows of its table are settled: the next table may replace rows known
            from then on. All rows of a view that is not named are settled.
        rewrite: Write all rows, even if the store is at a later time.
        step: Rows between two progress messages.
        reference: Reference of the feature tables, which is stored with the watermark.

    Raises:
        StoreError: if the store cannot be reached, or is already at a later time.
    """
    with connect() as connection:
        return [
            _materialize(
                connection,
                store,
                view,
                tables[view.name],
                as_of,
                (settled or {}).get(view.name),
                rewrite,
                step,
                reference,
            )
            for view in views
        ]


def _materialize(
    connection: duckdb.DuckDBPyConnection,
    store: OnlineStore,
    view: OnlineView,
    files: Sequence[Path],
    as_of: datetime,
    settled: datetime | None,
    rewrite: bool,
    step: int,
    reference: str,
) -> Materialized:
    open_rows(connection, view, files)
    until = epoch_us(as_of) if settled is None else min(epoch_us(as_of), epoch_us(settled) - 1)
    for _ in range(_ATTEMPTS):
        plan = _begin(connection, store, view, epoch_us(as_of), until, rewrite, reference)
        provisional = store.provisional(view)
        count = _select(connection, view, None if plan.rewrite else plan.before.settled, as_of)
        done = plan.before.done if plan.before.target == plan.target else 0
        if done:
            logger.info("%s: goes on after %d of %d rows", view.name, done, count)
        settling = _select_provisional(connection, view, provisional, as_of)
        changed = _write(connection, store, view, plan, done, count, step)
        changed += _settle(store, view, plan, settling, step)
        if _complete(store, view, plan):
            rows = count + _count_beside(connection, view)
            return Materialized(view.name, rows, rows - done, changed, plan.before.known, plan.rewrite)
        logger.info("%s: another run changed the online store meanwhile; looking again", view.name)
    raise StoreError(
        f"The view {view.name} was rewritten by other runs {_ATTEMPTS} times meanwhile. Run one at a time."
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


def _begin(
    connection: duckdb.DuckDBPyConnection,
    store: OnlineStore,
    view: OnlineView,
    as_of: int,
    settled: int,
    rewrite: bool,
    reference: str,
) -> _Plan:
    """Decide what to write, and record it in the store. If a run of the same plan was killed, it is continued."""
    while True:
        state = store.state(view.name)
        if state.known is not None and state.known > as_of and not rewrite:
            raise StoreError(
                f"The online store holds {view.name} as known at {_time(state.known)}, which is after this run's "
                f"as_of {_time(as_of)}. To go back, run with rewrite set to true."
            )
        whole, now, then = _digests(connection, view, [as_of, settled, state.settled])
        changed = state.known is not None and then != state.past
        # A rewrite that was not completed left rows that replace those of all earlier generations.
        fresh = rewrite or changed or state.last > state.generation
        target = _target(whole, as_of, settled, None if fresh else state)
        if state.target not in ("", target):
            # Another run has written rows, or is writing them.
            fresh, target = True, _target(whole, as_of, settled, None)
        if state.target == target:
            return _Plan(state, fresh, as_of, settled, now, state.writing, target, reference)
        if changed:
            logger.info("%s: what was settled is not what it was; it is written from the beginning", view.name)
        generation = state.last + 1 if fresh else state.generation
        after = replace(state, last=max(state.last, generation), target=target, writing=generation, done=0)
        if store.swap(view.name, state, after):
            return _Plan(after, fresh, as_of, settled, now, generation, target, reference)


def _target(whole: str, as_of: int, settled: int, before: State | None) -> str:
    """A digest of what a run writes: the rows of the table, and the state from which it starts."""
    parts = [whole, as_of, settled, *([before.known, before.settled, before.generation] if before else [])]
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def _digests(connection: duckdb.DuckDBPyConnection, view: OnlineView, times: Sequence[int | None]) -> list[str]:
    """Digests of the rows known at each of `times`; the order of rows does not count."""
    columns = (*view.keys, *view.features, "__event", "__created")
    types = connection.execute(f"DESCRIBE SELECT {', '.join(map(quoted, columns))} FROM features.rows").fetchall()
    shape = f"{[row[:2] for row in types]} {view.ttl}"
    hashed = f"hash({', '.join(map(quoted, columns))})::HUGEINT"
    known = [f"FILTER (__known <= {NEVER if time is None else time})" for time in times]
    found = connection.execute(
        f"SELECT {', '.join(f'[count(*) {each}, sum({hashed}) {each}]' for each in known)} FROM features.rows"
    ).fetchall()[0]
    return [hashlib.sha256(f"{shape} {pair}".encode()).hexdigest() for pair in found]


def _select(connection: duckdb.DuckDBPyConnection, view: OnlineView, since: int | None, as_of: datetime) -> int:
    """Create the table `features.wanted` of the rows to write, in order of the keys; returns their number."""
    known = f"SELECT * FROM features.rows WHERE __known > {NEVER if since is None else since}"
    connection.execute(f"CREATE OR REPLACE TABLE features.wanted AS {_newest(view, known, as_of)}")
    return int(connection.execute("SELECT count(*) FROM features.wanted").fetchall()[0][0])


def _select_provisional(
    connection: duckdb.DuckDBPyConnection, view: OnlineView, provisional: pa.Table, as_of: datetime
) -> pa.Table:
    """One row per provisional key from the table, without an event where the table has no fresh row for it."""
    keys = ", ".join(map(quoted, view.keys))
    connection.register("provisional", provisional)
    known = f"SELECT r.* FROM features.rows AS r SEMI JOIN provisional USING ({keys})"
    return connection.sql(
        f"SELECT {_columns(view)} FROM provisional LEFT JOIN ({_newest(view, known, as_of)}) USING ({keys})"
    ).to_arrow_table()


def _newest(view: OnlineView, rows: str, as_of: datetime) -> str:
    """A query of the newest known row of every key, if it is fresh, in order of the keys."""
    keys = ", ".join(map(quoted, view.keys))
    return (
        f"SELECT {_columns(view)} FROM ({rows}) WHERE __known <= {epoch_us(as_of)} AND __event >= {view.oldest(as_of)} "
        f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY __event DESC, __created DESC, __position DESC) = 1 "
        f"ORDER BY {keys}"
    )


def _columns(view: OnlineView) -> str:
    names = [*view.keys, view.event, *([view.created] if view.created else []), *view.features]
    return ", ".join(map(quoted, names))


def _count_beside(connection: duckdb.DuckDBPyConnection, view: OnlineView) -> int:
    """How many provisional keys are not among the rows to be written."""
    keys = ", ".join(map(quoted, view.keys))
    query = f"SELECT count(*) FROM provisional ANTI JOIN features.wanted USING ({keys})"
    return int(connection.execute(query).fetchall()[0][0])


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
    while done < count and _holds(store.state(view.name), plan):
        rows: pa.Table = connection.sql(f"FROM features.wanted LIMIT {step} OFFSET {done}").to_arrow_table()
        changed += store.write(view, rows, plan.generation, plan.settled + 1)
        done += rows.num_rows
        logger.info("%s: %d of %d rows", view.name, done, count)
        _note_progress(store, view, plan.target, done)
    return changed


def _settle(store: OnlineStore, view: OnlineView, plan: _Plan, settling: pa.Table, step: int) -> int:
    changed = 0
    for at in range(0, settling.num_rows, step):
        if _holds(store.state(view.name), plan):
            changed += store.settle(view, settling.slice(at, step), plan.generation, plan.as_of, plan.settled + 1)
    return changed


def _holds(state: State, plan: _Plan) -> bool:
    """Whether rows are still to be written and no other run completed the plan. A rewrite replaces the generation."""
    return state.target == plan.target or state.writing != plan.generation


def _note_progress(store: OnlineStore, view: OnlineView, target: str, done: int) -> None:
    """Record how many rows of `target` are written, unless another run is writing something else."""
    while (state := store.state(view.name)).target == target and state.done < done:
        if store.swap(view.name, state, replace(state, done=done)):
            return


def _complete(store: OnlineStore, view: OnlineView, plan: _Plan) -> bool:
    """Set the watermark. False if another rewrite or a run with other rows was faster: the plan must be made again."""
    if plan.rewrite:
        dropped = sorted({*plan.before.features} - {*view.features})
        store.sweep(view, plan.generation, dropped)
    while True:
        state = store.state(view.name)
        if state.generation > plan.generation:
            store.sweep(view, state.generation)
            return False
        if not _holds(state, plan):
            return state.known == plan.as_of and state.past == plan.past
        done = replace(
            state,
            generation=plan.generation,
            known=plan.as_of,
            settled=plan.settled,
            past=plan.past,
            features=view.features,
            tables=plan.tables,
        )
        if state.target == plan.target:
            done = replace(done, target="", done=0)
        if store.swap(view.name, state, done):
            return True


def _time(moment: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)).isoformat()
