"""The artifacts of a store: lists, describes, verifies, compares and queries them."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from gatehouse.data.snapshot.deliveries import delivered_tables
from gatehouse.data.snapshot.report import KIND, Group, groups_of, rejected_of
from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.errors import ConfigurationError, ErasedArtifactError, GatehouseError, InvalidManifestError, StoreError
from gatehouse.project.place import find
from gatehouse.store import eraser
from gatehouse.store.database import quoted
from gatehouse.store.deprecation import deprecation_of, marker_of
from gatehouse.store.erasure import erased_marker, erasure_of
from gatehouse.store.objects.base import side_by_side
from gatehouse.store.querying import SOURCE, queried, tables_in
from gatehouse.store.records import read_record
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_RECORDS = ("memo", "registry", "provenance", "runs", "measurements", "erasures")
_REFERENCE = re.compile(r'"([a-z][a-z-]*/[^"]+)"')


@dataclass(frozen=True)
class Artifact:
    """An artifact, whose `state` is empty, `deprecated`, `erased`, `unreadable` or `corrupt`."""

    reference: str
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    state: str = ""
    problem: str = field(default="", repr=False)


def artifacts(store: ArtifactStore, kind: str = "") -> list[Artifact]:
    """The artifacts of a store, or of one kind. Raises ConfigurationError if `kind` has not the form of a kind."""
    if kind and not re.fullmatch("[a-z][a-z0-9-]*", kind):
        raise ConfigurationError(f"expected a kind, such as datasets, found {kind!r}.")
    references, listed = list(store.references(kind or None)), []
    marked = [mark(reference) for reference in references for mark in (erased_marker, marker_of)]
    markers = store.objects.stats(marked)
    for reference in references:
        try:
            manifest, state = store.manifest(reference), ""
            if markers[erased_marker(reference)] is not None:
                state = "erased"
            elif markers[marker_of(reference)] is not None:
                state = "deprecated"
            total = sum(entry.bytes for entry in manifest.files)
            listed.append(Artifact(str(reference), manifest.rows, len(manifest.files), total, state))
        except GatehouseError as error:
            state = "unreadable" if isinstance(error, InvalidManifestError) else "corrupt"
            listed.append(Artifact(str(reference), state=state, problem=str(error)))
    return listed


def notes(store: ArtifactStore, reference: Reference) -> list[str]:
    """Facts for a reader of an artifact: it or its inputs were erased, it is deprecated, which stage made it."""
    lines = []
    with suppress(GatehouseError):  # A manifest cannot be read, as `verify` says.
        markers = {erased_marker(manifest.reference): manifest.reference for manifest in store.lineage(reference)}
        marked = [markers[key] for key, stat in store.objects.stats(markers).items() if stat is not None]
        erasures = {artifact: erasure for artifact in marked if (erasure := erasure_of(store.objects, artifact))}
        lines = [erasure.explain(str(artifact)) for artifact, erasure in erasures.items()]
        if erasures and reference not in erasures:
            lines.append("It was derived from erased data: it cannot be reproduced.")
    if deprecated := deprecation_of(store.objects, reference):
        lines.append(deprecated.explain(reference))
    if key := next(iter(store.objects.list(f"provenance/{reference}")), ""):
        record = read_record(store.objects, key) or {}
        run = f" in run {record['run']}" if record.get("run") else ""
        at = datetime.fromtimestamp(float(record["at"]), UTC)
        lines.append(f"made by stage {record['stage']}{run}, {at:%Y-%m-%d %H:%M:%S} UTC")
    return lines


@dataclass(frozen=True)
class Verified:
    """A reference or a record, and what is wrong; `state` is `intact`, `erased` or `broken`."""

    reference: str
    state: str
    problems: tuple[str, ...] = ()


def verify(store: ArtifactStore, reference: Reference | None = None) -> list[Verified]:
    """Verify every byte of an artifact and of all it was derived from; by default of all, and every record."""
    pending = [reference] if reference else list(store.references())
    results: dict[Reference, Verified] = {}
    while pending:
        artifact = pending.pop(0)
        if artifact in results:
            continue
        problems = store.problems(artifact)
        state = "erased" if problems else "intact"
        if any(not isinstance(problem, ErasedArtifactError) for problem in problems):
            state = "broken"
        results[artifact] = Verified(str(artifact), state, tuple(map(str, problems)))
        try:
            pending += [Reference.parse(parent) for parent in store.manifest(artifact).derived_from.values()]
        except GatehouseError:
            continue  # It is broken, as its problems say.
    records = () if reference else (key for folder in _RECORDS for key in store.objects.list(folder))
    keys = [key for key in records if key.endswith(".json")]
    wrong = zip(keys, side_by_side(store.objects, partial(_record_problem, store), keys), strict=True)
    return [*results.values(), *(Verified(key, "broken", (problem,)) for key, problem in wrong if problem)]


def _record_problem(store: ArtifactStore, key: str) -> str:
    try:
        read_record(store.objects, key)
    except GatehouseError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Change:
    """What differs in a table: its `rows`, the `rows only there`, or the type of a column; None for a missing side."""

    table: str
    what: str
    before: int | str | None
    after: int | str | None


def compare(store: ArtifactStore, before: Reference, after: Reference) -> list[Change]:
    """Compare two snapshots or tables, by rows in the columns that both have with one type.

    A value of a sensitive column equals every other.
    """
    sides = {"before": before, "after": after}
    tables = [tables_in(store, artifact) for artifact in sides.values()]
    changes: list[Change] = []
    with queried(store, sides, {}, partial(sensitive_columns, store)) as connection:
        for name in dict.fromkeys([*tables[0], *tables[1]]):
            both = [side.get(name) for side in tables]
            title, types = (
                name or after.name,
                [{c.name: c.type for c in table.columns} if table else {} for table in both],
            )
            changes.append(Change(title, "rows", *(table.rows if table else None for table in both)))
            if columns := [column for column, kind in types[0].items() if types[1].get(column) == kind]:
                cells = ", ".join(map(quoted, columns))
                rows = [f"SELECT {cells} FROM {_view(side, name)}" for side in sides]
                counted = (f"SELECT count(*) FROM ({a} EXCEPT ALL {b})" for a, b in (rows, reversed(rows)))
                only = [connection.execute(count).fetchall()[0][0] for count in counted]
                changes.append(Change(title, "rows only there", *only))
            for column in dict.fromkeys([*types[0], *types[1]]):
                kinds = [side.get(column) for side in types]
                changes += [Change(title, f"column {column}", *kinds)] if kinds[0] != kinds[1] else []
    return changes


def _view(schema: str, table: str) -> str:
    return f"{quoted(schema)}.{quoted(table)}" if table else quoted(schema)


@dataclass(frozen=True)
class Rows:
    """The result of a query, or the first rows of a table of `total` rows.

    In the `hidden` columns that the query names, conditions and counts see `***`.
    """

    columns: list[str]
    values: list[tuple[Any, ...]]
    total: int = 0
    hidden: tuple[str, ...] = ()

    def to_json(self) -> list[dict[str, Any]]:
        """A dictionary for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.values]


def query(store: ArtifactStore, sql: str, on: Sequence[str] = (), most: int = 0) -> Rows:
    """Run SQL over artifacts, all rows or at most `most + 1`; a value of a sensitive column is `***`.

    References stand in the query in double quotes; the tables of those in `on` have their own names. Raises
    ConfigurationError if the query cannot be run, or two artifacts have one name.
    """
    named = {text: find(store, text) for text in dict.fromkeys(_REFERENCE.findall(sql))}
    references = [find(store, text) for text in on]
    plain = {reference.name: reference for reference in references}
    if len(plain) < len(references):
        raise ConfigurationError("--on: two artifacts have one name. Name them in the query, in double quotes.")
    rows = _fetched(store, named, plain, sql, most)
    sensitive = {column for found in (*named.values(), *references) for column in sensitive_columns(store, found)}
    words = set(re.findall(r"\w+", sql.lower()))
    return replace(rows, hidden=tuple(sorted(column for column in sensitive if column.lower() in words)))


def head(store: ArtifactStore, reference: Reference, rows: int = 10) -> dict[str, Rows]:
    """The first rows of a table, or of each table of a snapshot, by name; sensitive columns as in `query`."""
    delivered = delivered_tables(store, reference) if reference.kind == "snapshots" else {}
    tables = {}
    for name, table in tables_in(store, reference).items():
        columns = delivered[name].columns if name in delivered else [column.name for column in table.columns]
        sql = f"SELECT {', '.join(map(quoted, columns))} FROM {_view('it', name)} LIMIT {rows}"
        first = _fetched(store, {"it": reference}, {}, sql, 0)
        tables[name or reference.name] = Rows(first.columns, first.values, table.rows)
    return tables


def _fetched(
    store: ArtifactStore, named: Mapping[str, Reference], plain: Mapping[str, Reference], sql: str, most: int
) -> Rows:
    import duckdb

    with queried(store, named, plain, partial(sensitive_columns, store)) as connection:
        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1:
                raise ConfigurationError(f"expected one query, found {len(statements)}: give each to a command.")
            result = connection.execute(statements[0])
            columns = [str(column[0]) for column in result.description or ()]
            return Rows(columns, result.fetchmany(most + 1) if most else result.fetchall())
        except duckdb.Error as error:
            views = "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal"
            tables = [
                view if schema == "main" else _view(schema, view)
                for schema, view in connection.execute(views).fetchall()
                if not view.startswith(SOURCE)
            ]
            named_tables = f"Tables that it may name: {', '.join(tables)}."
            if not tables:
                named_tables = 'Name a table as "datasets/NAME"; `gatehouse data list datasets` lists them.'
            raise ConfigurationError(f"The query cannot be run: {error}\n{named_tables}") from None


@dataclass(frozen=True)
class Rejected:
    """The rows of a table that did not fit, by reason; no value of the `hidden` columns is shown."""

    table: str
    rows: int
    rejected: int
    reference: str
    hidden: tuple[str, ...]
    groups: tuple[Group, ...]


def rejected(store: ArtifactStore, reference: Reference | None = None, examples: int = 3) -> list[Rejected]:
    """The rejected rows of a snapshot, a dataset, or of all, with some examples of each reason."""
    tables = []
    for rows in rejected_of(store, reference) if reference else list(store.references(KIND)):
        manifest = store.manifest(rows)
        dataset, groups = store.manifest(manifest.derived_from["dataset"]), groups_of(store, rows, examples)
        counts, hidden = (dataset.rows or 0, manifest.rows or 0), tuple(dataset.details.get("sensitive", ()))
        tables.append(Rejected(manifest.name, *counts, str(rows), hidden, tuple(groups)))
    return tables


def erase(store: ArtifactStore, plan: eraser.ErasurePlan, reason: str, by: str = "", **scope: bool) -> str:
    """Erase what a plan lists, and return the key of the record; `scope` is what it was planned with.

    Raises StoreError if more of it was published in the meantime.
    """
    record = eraser.erase(store, plan, reason, by)
    after = eraser.plan_erasure(store, plan.reference, **scope)
    if after.erased or after.blobs or len(after.holders) > len(plan.holders):
        more = ", ".join(map(str, dict.fromkeys([*after.erased, *after.holders])))
        raise StoreError(f"While {plan.reference} was erased, these were published: {more}. Erase it again.")
    return record
