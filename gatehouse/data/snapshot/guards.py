"""Compares a delivery with its declaration, with the newest earlier snapshot of its source and window, and the clock.

Parts are compared by their digests, spans and columns. Only parts that are new or gone are compared row by row, so a
guard costs what changed.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from gatehouse.data.snapshot.deliveries import Table
from gatehouse.data.snapshot.parts import Stored
from gatehouse.data.snapshot.spec import Guards, Policy, TableSpec
from gatehouse.data.sources.declared import EPOCH, schema_of
from gatehouse.errors import DeliveryError, MissingArtifactError
from gatehouse.store.database import connect, quoted, text_literal

_MEMORY = 256 << 20


class Finding(NamedTuple):
    """The finding of one guard."""

    guard: str
    message: str

    def policy(self, guards: Guards) -> Policy:
        """The consequence; a finding without a guard of its own is a warning."""
        policy: Policy = getattr(guards, self.guard, "warn")
        return policy


@dataclass(frozen=True)
class TableDelivery:
    """A table as it is delivered now, and as it was.

    `path` gives a local file with the rows of a stored part; `same` says that the source is unchanged, so that other
    rows come from another declaration or other code.
    """

    name: str
    spec: TableSpec
    parts: tuple[Stored, ...]
    earlier: Table | None
    path: Callable[[Stored], Path]
    workspace: Path
    same: bool = False


def guard_warnings(delivery: TableDelivery, backfill: str) -> list[str]:
    """The warnings of every guard but those of the clock. `backfill` is the reason for which earlier rows may change.

    Raises DeliveryError listing what guards with the policy `fail` found.
    """
    guards, findings = delivery.spec.guards, [*_delivery(delivery)]
    if delivery.earlier is not None:
        findings += _history(delivery, delivery.earlier)
    findings = [finding for finding in findings if finding.policy(guards) != "accept"]
    meant = "rewrite" if backfill else ""
    if failed := [finding for finding in findings if finding.policy(guards) == "fail" and finding.guard != meant]:
        listed = " ".join(finding.message for finding in failed)
        advice = " If it is meant, give the reason as `backfill` and run again."
        advice *= any(finding.guard == "rewrite" for finding in failed)
        raise DeliveryError(f"Table {delivery.name}: {listed}{advice} Nothing was published.")
    passed = f" Let pass as a backfill: {backfill.rstrip('.')}." if backfill else ""
    return [
        f"Table {delivery.name}: {finding.message}{passed if finding.guard == 'rewrite' else ''}"
        for finding in findings
    ]


def _delivery(delivery: TableDelivery) -> Iterator[Finding]:
    """Columns, parts and the number of rows, against the declaration and the earlier snapshot."""
    declared = delivery.spec.columns
    now, before = _delivered(delivery.parts), _delivered(delivery.earlier.parts if delivery.earlier else ())
    if extra := ", ".join(sorted(now.keys() - declared.keys())):
        message = f"new_column: {extra}: not declared, left out. Declare them, or accept new columns."
        yield Finding("new_column", message)
    if now and (missing := ", ".join(sorted(declared.keys() - now.keys()))):
        message = f"missing_column: {missing}: null in new rows. Deliver them, or accept missing columns."
        yield Finding("missing_column", message)
    changed = [name for name in sorted(now) if before.get(name, now[name]) != now[name]]
    retyped = ", ".join(f"{name} (was {before[name]}, is {now[name]})" for name in changed)
    if retyped:
        message = f"retyped_column: {retyped}. Correct the delivery, or accept retyped columns."
        yield Finding("retyped_column", message)
    nan = sum((Counter(part.nan) for part in delivery.parts), Counter[str]())
    if listed := ", ".join(f"{name} ({count:,})" for name, count in sorted(nan.items())):
        message = f"nan: NaN is read as a missing value in {listed}. Accept it, or list the column in keeps_nan."
        yield Finding("nan", message)
    counts = Counter(part.digest for part in delivery.parts if part.blob)
    if twice := [part for part in delivery.parts if part.blob and counts[part.digest] > 1]:
        copies, times = f"{twice[0].rows:,}", counts[twice[0].digest]
        files = ", ".join(sorted({str(part.position.get("file", "")) for part in twice} - {""})[:5])
        message = f"duplicate_part: the same {copies} rows were delivered {times} times{files and f' ({files})'}."
        yield Finding("duplicate_part", f"{message} Remove the copies, or accept duplicate parts.")
    rows_before, rows = delivery.earlier.rows if delivery.earlier else 0, sum(part.rows for part in delivery.parts)
    least, most = rows_before * delivery.spec.guards.shrink, rows_before * delivery.spec.guards.growth
    if rows_before and not least <= rows <= most:
        expected = f"expected {least:,.0f} to {most:,.0f} rows after {rows_before:,} before, found {rows:,}"
        yield Finding("row_count", f"row_count: {expected}. Check that the delivery is whole.")


def _delivered(parts: tuple[Stored, ...]) -> dict[str, str]:
    """The type of each column in the delivered files, from the newest part in which it is known."""
    columns: dict[str, str] = {}
    for part in reversed(parts):
        for name, kind in part.columns.items():
            if columns.setdefault(name, kind) == "null":
                columns[name] = kind
    return columns


def _history(delivery: TableDelivery, earlier: Table) -> Iterator[Finding]:
    import pyarrow.parquet as pq

    guards, time = delivery.spec.guards, delivery.spec.event_time
    now, before = (Counter(part.digest for part in parts) for parts in (delivery.parts, earlier.parts))
    same, new = _split(delivery.parts, now & before)
    _, gone = _split(earlier.parts, now & before)
    if not (new or gone) or not time or not earlier.last:
        return
    newest = datetime.fromisoformat(earlier.last)
    allowance = delivery.spec.availability_lag if guards.rewrite_allowance is None else guards.rewrite_allowance
    settled, on_time = newest - allowance, newest - guards.late_allowance
    try:
        # The declared columns that the parts that are gone have with the same type; new parts have all of them.
        schemas = [pq.read_schema(delivery.path(part)) for part in gone]
        columns = [
            field.name
            for field in schema_of(delivery.spec.columns)
            if all(field.name in schema.names and schema.field(field.name).type == field.type for schema in schemas)
        ]
        if time not in columns or (earlier.event_time or time) != time:
            yield _not_judged(f"the earlier snapshot has another event time than {time}.")
            return
        counts = _compare(delivery, columns, new, gone, same, settled, on_time)
    except MissingArtifactError as error:
        yield _not_judged(str(error))
        return
    if counts["gone"]:
        why = "; the source is unchanged, so its declaration or the code that reads it changed" if delivery.same else ""
        changed = f"{counts['gone']:,} rows of the earlier snapshot up to {settled.isoformat()} changed or went"
        yield Finding("rewrite", f"rewrite: {changed}, expected none{why}.")
    if counts["late"]:
        limit = f"{on_time.isoformat()}, the newest event time of the earlier snapshot minus guards.late_allowance"
        yield Finding("late", f"late: {counts['late']:,} new rows are older than {limit}.")
    if counts["again"]:
        message = f"duplicate_rows: {counts['again']:,} new rows are the same as rows of the earlier snapshot."
        yield Finding("duplicate_rows", f"{message} Check that nothing was delivered twice.")


def _not_judged(why: str) -> Finding:
    return Finding("", f"rewrite, late, duplicate_rows: could not be judged: {why} Compare the rows yourself.")


def _split(parts: tuple[Stored, ...], kept: Counter[str]) -> tuple[list[Stored], list[Stored]]:
    """The parts with rows whose digest is kept, each of which counts once, and the others."""
    left = Counter(kept)
    same: list[Stored] = []
    other: list[Stored] = []
    for part in parts:
        (same if left[part.digest] > 0 else other).append(part)
        left[part.digest] -= 1
    return [part for part in same if part.blob], [part for part in other if part.blob]


def _compare(
    delivery: TableDelivery,
    columns: list[str],
    new: list[Stored],
    gone: list[Stored],
    same: list[Stored],
    settled: datetime,
    on_time: datetime,
) -> dict[str, int]:
    """Counts of settled rows that are gone, and of added rows that are late or there already.

    A row that was completed or changed keeps its event time, so it is not late: a row is late if it adds to its time.
    """
    oldest = _appended(delivery, new, gone)
    since = oldest.isoformat() if oldest else min((part.first for part in new), default="")
    until = max((part.last for part in new), default="")
    overlapping = [part for part in same if part.last >= since and part.first <= until]
    apart = not overlapping and all(part.last < since for part in gone)
    if oldest is not None and oldest >= on_time and apart:
        return {"gone": 0, "late": 0, "again": 0}
    time, selected = quoted(delivery.spec.event_time), ", ".join(map(quoted, columns))
    with connect(spill=delivery.workspace / "guards", most=_MEMORY) as database:
        database.sql("SET TimeZone='UTC'")
        for name, parts in (("new", new), ("gone", gone), ("overlapping", overlapping)):
            paths = ", ".join(text_literal(delivery.path(part)) for part in parts or [*new, *gone])
            condition = "" if parts else " WHERE false"
            database.sql(f"CREATE VIEW {name}_rows AS SELECT {selected} FROM read_parquet([{paths}]){condition}")
        database.sql("CREATE TEMP TABLE added AS SELECT * FROM new_rows EXCEPT ALL SELECT * FROM gone_rows")
        database.sql(
            "CREATE TEMP TABLE missed AS SELECT * FROM (SELECT * FROM gone_rows EXCEPT ALL SELECT * FROM new_rows) "
            f"WHERE {time} <= TIMESTAMPTZ '{settled.isoformat()}'"
        )
        queries = {
            "gone": "SELECT count(*) FROM missed",
            "late": f"SELECT count(*) FROM (SELECT {time} FROM new_rows EXCEPT ALL SELECT {time} FROM gone_rows) "
            f"WHERE {time} < TIMESTAMPTZ '{on_time.isoformat()}'",
            "again": "SELECT count(*) FROM (SELECT * FROM added INTERSECT ALL "
            "(SELECT * FROM overlapping_rows UNION ALL SELECT * FROM gone_rows))",
        }
        return {name: int(database.sql(query).fetchall()[0][0]) for name, query in queries.items()}


def _appended(delivery: TableDelivery, new: list[Stored], gone: list[Stored]) -> datetime | None:
    """Oldest event time of what was added, if all that is gone is the beginning of one new part: an append."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if len(gone) > 1 or not new:
        return None
    times = [datetime.fromisoformat(part.first) for part in new[len(gone) :] if part.first]
    if gone:
        grown, before = (pq.ParquetFile(delivery.path(part)).read() for part in (new[0], gone[0]))
        if not grown.slice(0, before.num_rows).equals(before):
            return None
        rest = pc.min(grown.slice(before.num_rows)[delivery.spec.event_time].cast("int64")).as_py()
        times += [EPOCH + timedelta(microseconds=rest)] if rest is not None else []
    return min(times, default=None)
