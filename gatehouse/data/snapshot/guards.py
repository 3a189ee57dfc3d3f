"""Holds a delivery against its declaration and against the newest earlier snapshot of the same source and window.

What is judged is what the parts tell: their digests, spans and columns. Only parts that are new or gone are compared
row by row, so a guard costs what changed and not what there is.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatehouse.data.snapshot.deliveries import Table
from gatehouse.data.snapshot.parts import Stored, iso
from gatehouse.data.snapshot.spec import Policy, TableSpec
from gatehouse.data.sources.declared import schema_of
from gatehouse.errors import DeliveryError, MissingArtifactError
from gatehouse.store.database import connect, quoted, text_literal
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import duckdb

_MEMORY = 256 << 20
_TOLD = 4
_ALIKE = 100


@dataclass(frozen=True)
class Finding:
    """What one guard found; `policy` says what comes of it."""

    guard: str
    policy: Policy
    message: str
    advice: str = ""


@dataclass(frozen=True)
class Case:
    """A table as it is delivered now, and as it was.

    Attributes:
        name: The table's name.
        spec: Its declaration.
        parts: Its parts now.
        origin: What it is read from now.
        earlier: The table in the newest earlier snapshot; None where there is none.
        path: Gives a local file with the rows of a stored part.
        workspace: For what does not fit memory.
        same: Whether the source is as it was, so that other rows come of another declaration, or of other code.
    """

    name: str
    spec: TableSpec
    parts: tuple[Stored, ...]
    origin: str
    earlier: Table | None
    path: Callable[[Stored], Path]
    workspace: Path
    same: bool = False


def judge(case: Case, backfill: str) -> list[str]:
    """Hold a table against every guard.

    Args:
        case: The table.
        backfill: The reason for which earlier rows may change; empty for none.

    Returns:
        The warnings; a rewrite that `backfill` lets pass is one.

    Raises:
        DeliveryError: listing what guards with the policy `fail` found.
    """
    findings = [finding for finding in _findings(case) if finding.policy != "accept"]
    failed = [one for one in findings if one.policy == "fail" and not (one.guard == "rewrite" and backfill)]
    if failed:
        listed = " ".join(f"{one.message}{one.advice}" for one in failed)
        raise DeliveryError(f"Table {case.name}: {listed} Nothing was published.")
    passed = f" Let pass as a backfill: {backfill.rstrip('.')}." if backfill else ""
    allowed = [passed if one.guard == "rewrite" else "" for one in findings]
    return [f"Table {case.name}: {one.message}{more}" for one, more in zip(findings, allowed, strict=True)]


def _findings(case: Case) -> Iterator[Finding]:
    yield from _schema(case)
    yield from _duplicate_parts(case)
    if case.earlier is not None:
        yield from _row_count(case, case.earlier)
        yield from _history(case, case.earlier)


def _schema(case: Case) -> Iterator[Finding]:
    guards, declared = case.spec.guards, case.spec.columns
    now, before = _delivered(case.parts), _delivered(case.earlier.parts if case.earlier else ())
    extra = sorted(now.keys() - declared.keys())
    missing = sorted(declared.keys() - now.keys()) if now else []
    if extra:
        yield Finding(
            "new_column",
            guards.new_column,
            f"new_column: {', '.join(extra)}: not declared, left out. Declare them under columns, or set "
            "guards.new_column: accept.",
        )
    if missing:
        yield Finding(
            "missing_column",
            guards.missing_column,
            f"missing_column: {', '.join(missing)}: null in new rows. "
            "Have the columns delivered, or set guards.missing_column: accept.",
        )
    retyped = [
        f"{name} (was {before[name]}, is {now[name]})"
        for name in sorted(now)
        if before.get(name, now[name]) != now[name]
    ]
    before_from = case.earlier.origin if case.earlier else ""
    if retyped and before_from not in ("", case.origin):
        yield Finding(
            "origin",
            "warn",
            f"read from {case.origin}, before from {before_from}, which names types otherwise: {', '.join(retyped)}. "
            "That says nothing of the values: rows are compared as they are declared.",
        )
    elif retyped:
        yield Finding(
            "retyped_column",
            guards.retyped_column,
            f"retyped_column: {', '.join(retyped)}. Correct the delivery, or set guards.retyped_column if it is meant.",
        )


def _delivered(parts: tuple[Stored, ...]) -> dict[str, str]:
    """The type of each column in the delivered files, from the newest part in which it is known."""
    found: dict[str, str] = {}
    for part in reversed(parts):
        for name, kind in part.columns.items():
            if found.setdefault(name, kind) == "null":
                found[name] = kind
    return found


def _duplicate_parts(case: Case) -> Iterator[Finding]:
    counts = Counter(part.digest for part in case.parts if part.blob)
    twice = [part for part in case.parts if part.blob and counts[part.digest] > 1]
    if twice:
        where = sorted({str(part.position.get("file", "")) for part in twice} - {""})
        named = f" ({', '.join(where[:5])})" if where else ""
        yield Finding(
            "duplicate_part",
            case.spec.guards.duplicate_part,
            f"duplicate_part: the same {twice[0].rows:,} rows were delivered {counts[twice[0].digest]} times{named}. "
            "Remove the copies, or set guards.duplicate_part if they are meant.",
        )


def _row_count(case: Case, earlier: Table) -> Iterator[Finding]:
    guards, rows = case.spec.guards, sum(part.rows for part in case.parts)
    least, most = earlier.rows * guards.shrink, earlier.rows * guards.growth
    if earlier.rows and not least <= rows <= most:
        yield Finding(
            "row_count",
            guards.row_count,
            f"row_count: expected {least:,.0f} to {most:,.0f} rows after {earlier.rows:,} before, found {rows:,}. "
            "Check that the delivery is whole, or change guards.shrink and guards.growth.",
        )


def _history(case: Case, earlier: Table) -> Iterator[Finding]:
    """Late, repeated and rewritten rows, told by the parts that are new or gone."""
    guards = case.spec.guards
    now, before = (Counter(part.digest for part in parts) for parts in (case.parts, earlier.parts))
    same, new = _split(case.parts, now & before)
    _, gone = _split(earlier.parts, now & before)
    if not (new or gone) or not case.spec.event_time or not earlier.last:
        return
    newest = datetime.fromisoformat(earlier.last)
    allowance = case.spec.availability_lag if guards.rewrite_allowance is None else guards.rewrite_allowance
    settled, on_time = newest - allowance, newest - guards.late_allowance
    try:
        columns, retyped = _common_columns(case, gone)
        if case.spec.event_time not in columns or (earlier.event_time or case.spec.event_time) != case.spec.event_time:
            yield _not_judged(f"the earlier snapshot has another event time than {case.spec.event_time}.")
            return
        counts, first = _compare(case, columns, new, gone, same, settled, on_time)
    except MissingArtifactError as error:
        yield _not_judged(str(error))
        return
    if retyped:
        yield _not_judged(f"by {', '.join(retyped)}: declared as another type than before. The other columns were.")
    if counts["gone"]:
        why = "; the source is as it was, so its declaration or the code that reads it changed" if case.same else ""
        yield Finding(
            "rewrite",
            guards.rewrite,
            f"rewrite: {counts['gone']:,} rows of the earlier snapshot up to {settled.isoformat()} changed or went, "
            f"expected none{why}.",
            # No erasure reaches the record of a snapshot, which keeps the message and not the advice.
            f"{first} If it is meant, run again with the reason as `backfill`.",
        )
    if counts["late"]:
        late = guards.late_allowance
        allowed = f", {newest.isoformat()}, minus guards.late_allowance, {late}" if late else ""
        yield Finding(
            "late",
            guards.late,
            f"late: {counts['late']:,} new rows are older than {on_time.isoformat()}, the newest event time of the "
            f"earlier snapshot{allowed}. What was computed from that snapshot did not know them. "
            "Where rows come late by nature, raise guards.late_allowance.",
        )
    if counts["again"]:
        yield Finding(
            "duplicate_rows",
            guards.duplicate_rows,
            f"duplicate_rows: {counts['again']:,} new rows are the same as rows of the earlier snapshot. "
            "Check that nothing was delivered twice.",
        )


def _not_judged(why: str) -> Finding:
    return Finding(
        "rewrite", "warn", f"rewrite, late, duplicate_rows: could not be judged: {why} Compare the rows yourself."
    )


def _split(parts: tuple[Stored, ...], kept: Counter[str]) -> tuple[list[Stored], list[Stored]]:
    """The parts with rows that are among those kept, each of which counts once, and the others."""
    left = Counter(kept)
    same: list[Stored] = []
    other: list[Stored] = []
    for part in parts:
        (same if left[part.digest] > 0 else other).append(part)
        left[part.digest] -= 1
    return [part for part in same if part.blob], [part for part in other if part.blob]


def _compare(
    case: Case,
    columns: list[str],
    new: list[Stored],
    gone: list[Stored],
    same: list[Stored],
    settled: datetime,
    on_time: datetime,
) -> tuple[dict[str, int], str]:
    """How many settled rows are gone, and of those added how many are late, and are there already; and the first gone.

    A row that was completed or changed keeps its event time, so it is not late: late is what a time has more of.
    """
    oldest = _appended(case, new, gone)
    since = oldest.isoformat() if oldest else min((part.first for part in new), default="")
    until = max((part.last for part in new), default="")
    overlapping = [part for part in same if part.last >= since and part.first <= until]
    apart = not overlapping and all(part.last < since for part in gone)
    if oldest is not None and oldest >= on_time and apart:
        return {"gone": 0, "late": 0, "again": 0}, ""
    with connect(spill=case.workspace / "guards", most=_MEMORY) as database:
        database.sql("SET TimeZone='UTC'")
        for name, parts in (("new", new), ("gone", gone), ("overlapping", overlapping)):
            _view(database, name, columns, parts, [*new, *gone], case)
        database.sql("CREATE TEMP TABLE added AS SELECT * FROM new_rows EXCEPT ALL SELECT * FROM gone_rows")
        time = quoted(case.spec.event_time)
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
        counts = {name: int(database.sql(query).fetchall()[0][0]) for name, query in queries.items()}
        return counts, _first_gone(database, columns, time, case.spec) if counts["gone"] else ""


def _first_gone(database: "duckdb.DuckDBPyConnection", columns: list[str], time: str, spec: TableSpec) -> str:
    """The first settled row that is gone, and what differs in the row of its time that is most like it."""

    def told(row: dict[str, Any], names: list[str]) -> str:
        hidden = dict.fromkeys(spec.sensitive, "***")
        values = [f"{name}={hidden.get(name, row[name])}" for name in names[:_TOLD]]
        return ", ".join([*values, "…"] if len(names) > _TOLD else values)

    at = f"WHERE {time} = (SELECT min({time}) FROM missed) ORDER BY ALL"
    first, alike = f"SELECT * FROM missed {at} LIMIT 1", f"SELECT * FROM added {at} LIMIT {_ALIKE}"
    (row,), others = (
        [dict(zip(columns, values, strict=True)) for values in database.sql(text).fetchall()]
        for text in (f"SELECT COLUMNS(*)::VARCHAR FROM ({query})" for query in (first, alike))
    )
    differing = [[name for name in columns if other[name] != row[name]] for other in others]
    names = min(differing, key=len, default=[])
    now = told(others[differing.index(names)], names) if others else "not there"
    return f" First {told(row, columns)}: now {now}."


def _common_columns(case: Case, gone: list[Stored]) -> tuple[list[str], list[str]]:
    """The declared columns that the parts that are gone have too, and those among them that had another type.

    All parts that are there now have the declared columns; earlier ones may be of another declaration.
    """
    import pyarrow.parquet as pq

    earlier = [pq.read_schema(case.path(part)) for part in gone]
    shared = [field for field in schema_of(case.spec.columns) if all(field.name in schema.names for schema in earlier)]
    retyped = [field.name for field in shared if any(schema.field(field.name).type != field.type for schema in earlier)]
    return [field.name for field in shared if field.name not in retyped], retyped


def _view(
    database: "duckdb.DuckDBPyConnection",
    name: str,
    columns: list[str],
    parts: list[Stored],
    instead: list[Stored],
    case: Case,
) -> None:
    """A view of the rows of some parts; without parts, one of no rows with the columns of `instead`."""
    listed = ", ".join(text_literal(case.path(part)) for part in parts or instead)
    selected = ", ".join(map(quoted, columns))
    condition = "" if parts else " WHERE false"
    database.sql(f"CREATE VIEW {name}_rows AS SELECT {selected} FROM read_parquet([{listed}]){condition}")


def _appended(case: Case, new: list[Stored], gone: list[Stored]) -> datetime | None:
    """Oldest event time of what was added, where all that is gone is the beginning of one new part: an append."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if len(gone) > 1 or not new:
        return None
    added = list(new)
    times = []
    if gone:
        grown, before = (pq.ParquetFile(case.path(part)).read() for part in (new[0], gone[0]))
        if not grown.slice(0, before.num_rows).equals(before):
            return None
        added = added[1:]
        rest = pc.min(grown.slice(before.num_rows)[case.spec.event_time].cast("int64")).as_py()
        times = [datetime.fromisoformat(iso(rest))] if rest is not None else []
    times += [datetime.fromisoformat(part.first) for part in added if part.first]
    return min(times, default=None)


def local_path(store: ArtifactStore, part: Stored) -> Path:
    """A local file with the rows of a stored part."""
    assert part.blob is not None
    return store.objects.local_path(part.blob.key)
