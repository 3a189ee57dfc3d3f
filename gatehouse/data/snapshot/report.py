"""The pages of a snapshot, table by table, and of the rejected rows of a table, reason by reason."""

from dataclasses import dataclass

from gatehouse.data.snapshot.deliveries import delivered_tables, written_times
from gatehouse.data.sources.declared import HIDDEN, NOT_SHOWN
from gatehouse.reports.format import cut
from gatehouse.reports.page import Verdict, render
from gatehouse.runtime.plural import counted
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

KIND = "rejected"


@dataclass(frozen=True)
class Example:
    """One row: its place, the value that did not fit, and the row as the source gave it."""

    place: str
    observed: str
    raw: str


@dataclass(frozen=True)
class Group:
    """Rows that were rejected for one reason; `column` is empty if the row itself does not fit."""

    column: str
    reason: str
    rows: int
    examples: tuple[Example, ...]


def groups_of(store: ArtifactStore, reference: Reference | str, examples: int = 3) -> list[Group]:
    """The rejected rows of a table by column and reason, the most frequent first.

    Sensitive values were hidden when the rows were rejected, and are in no file.
    """
    from gatehouse.store.database import connect

    with connect() as database:
        database.read_parquet([str(path) for path in store.paths(Reference.parse(reference))]).create_view("rejected")
        groups = database.execute(
            "SELECT \"column\", reason, count(*), arg_min({'place': place, 'observed': observed, 'raw': raw}, n, $1) "
            "FROM (SELECT *, row_number() OVER () AS n FROM rejected) GROUP BY ALL ORDER BY 3 DESC, 1, 2",
            [max(examples, 1)],
        ).fetchall()
    return [
        Group(column, reason, rows, tuple(Example(**row) for row in first[:examples]))
        for column, reason, rows, first in groups
    ]


def rejected_of(store: ArtifactStore, reference: Reference | str) -> list[Reference]:
    """The rejected rows that an artifact names: its own, those of a dataset, or of the datasets of a snapshot."""
    named = Reference.parse(reference)
    if named.kind == KIND:
        return [named]
    datasets = {str(named), *store.manifest(named).derived_from.values()}
    return [
        reference
        for reference in store.references(KIND)
        if store.manifest(reference).derived_from.get("dataset") in datasets
    ]


_GROUPS, _EXAMPLES = 50, 5


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a snapshot: its tables, with their columns and the number of rejected rows."""
    manifest = store.manifest(reference)
    delivered = delivered_tables(store, reference)
    tables = {name: store.manifest(manifest.derived_from[name]) for name in delivered}
    manifests = [store.manifest(rejected) for rejected in rejected_of(store, reference)]
    by_dataset = {rejected.derived_from["dataset"]: rejected.rows or 0 for rejected in manifests}
    rejected = {name: by_dataset.get(str(table.reference), 0) for name, table in tables.items()}
    kept = {name: table.rows or 0 for name, table in tables.items()}
    warnings = [
        f"{name}: {count:,} of {count + kept[name]:,} rows did not fit and were set aside"
        for name, count in rejected.items()
        if count
    ]
    return render(
        "snapshot.html",
        f"Snapshot of {manifest.name}",
        "",
        Verdict(
            "pass",
            f"{counted(len(kept), 'table')} with {counted(sum(kept.values()), 'row')}.",
            warnings=warnings,
            unchecked=["the contract: the validation of this snapshot judges it"],
            todo="look at these rows with `gatehouse data rejected`, which gives the reason of each." * bool(warnings),
            title="Taken",
        ),
        details=manifest.details,
        tables=tables,
        rejected=rejected,
        delivered=delivered,
        written_times=written_times,
    )


def rejected_page(store: ArtifactStore, reference: str) -> str:
    """The page of the rejected rows of a table."""
    manifest, groups = store.manifest(reference), groups_of(store, reference, _EXAMPLES)
    dataset = store.manifest(manifest.derived_from["dataset"])
    kept, rejected = dataset.rows or 0, manifest.rows or 0
    share = rejected / (kept + rejected)
    text = f"{rejected:,} of {kept + rejected:,} rows ({share:.2%}) did not fit and were set aside."
    examples = []
    for group in groups[:_GROUPS]:
        cells = {
            "where": [example.place.replace("line ", "line\u00a0") for example in group.examples],
            "found": [cut(example.observed) for example in group.examples],
            "the row as the source gave it": [cut(example.raw) for example in group.examples],
        }
        shown = {header: column for header, column in cells.items() if not set(column) <= {HIDDEN, NOT_SHOWN}}
        examples.append((list(shown), list(zip(*shown.values(), strict=True))))
    return render(
        "rejected.html",
        f"Rejected rows of {manifest.name}",
        "",
        Verdict("warn", text, title="Rows set aside"),
        dataset=Reference.parse(dataset.reference).short,
        sensitive=dataset.details.get("sensitive", ()),
        rejected=rejected,
        kept=kept,
        groups=groups,
        shown=_GROUPS,
        examples=examples,
    )
