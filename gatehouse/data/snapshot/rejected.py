"""The rejected rows of a table, counted by what was wrong with them, with examples of each."""

from dataclasses import dataclass

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
