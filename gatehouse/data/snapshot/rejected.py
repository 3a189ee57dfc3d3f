"""The rows of a table that were set aside, counted by what was wrong with them, with examples of each."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import pyarrow.parquet as pq

KIND = "rejected"


@dataclass(frozen=True)
class Example:
    """One row: where it stands, what was found there, and the row as the source gave it."""

    place: str
    found: str
    raw: str


@dataclass(frozen=True)
class Group:
    """Rows that were set aside for one reason.

    Attributes:
        column: Whose value does not fit; empty where it is the row itself.
        reason: What was expected.
        rows: How many rows.
        examples: The first ones.
    """

    column: str
    reason: str
    rows: int
    examples: tuple[Example, ...]


def groups_of(store: ArtifactStore, reference: Reference | str, examples: int = 3) -> list[Group]:
    """The rejected rows of a table by column and reason, the most frequent first.

    Sensitive values were hidden when the rows were set aside, and are in no file.

    Args:
        store: Where they are.
        reference: Of the rejected rows.
        examples: How many examples of each reason.
    """
    import pyarrow.parquet as pq

    counts: Counter[tuple[str, str]] = Counter()
    firsts: dict[tuple[str, str], list[Example]] = {}
    for path in store.paths(Reference.parse(reference)):
        file = pq.ParquetFile(path, read_dictionary=["column", "reason"])
        for place in range(file.num_row_groups):
            kinds = file.read_row_group(place, ["column", "reason"]).group_by(["column", "reason"], use_threads=False)
            found = {
                (one["column"], one["reason"]): one["count_all"]
                for one in kinds.aggregate([([], "count_all")]).to_pylist()
            }
            lacking = {key: min(examples - len(firsts.get(key, ())), rows) for key, rows in found.items()}
            for key, rows in _first_rows(file, place, lacking):
                firsts.setdefault(key, []).extend(rows)
            counts.update(found)
    ordered = sorted(counts, key=lambda key: (-counts[key], key))
    return [Group(*key, counts[key], tuple(firsts.get(key, ()))) for key in ordered]


def _first_rows(
    file: "pq.ParquetFile", row_group: int, wanted: Mapping[tuple[str, str], int]
) -> Iterator[tuple[tuple[str, str], list[Example]]]:
    """The first rows of each column and reason in a row group, as many as are wanted of each, read as far as needed."""
    import pyarrow.compute as pc

    left = {key: rows for key, rows in wanted.items() if rows > 0}
    batches = file.iter_batches(1024, row_groups=[row_group])
    while left:
        batch = next(batches)
        for key in list(left):
            mine = pc.and_(pc.equal(batch["column"], key[0]), pc.equal(batch["reason"], key[1]))
            rows = batch.filter(mine).slice(0, left[key]).select(["place", "found", "raw"]).to_pylist()
            yield key, [Example(**row) for row in rows]
            left[key] -= len(rows)
            if not left[key]:
                del left[key]


def rejected_of(store: ArtifactStore, reference: Reference | str) -> list[Reference]:
    """The rejected rows that an artifact stands for: its own, those of a dataset, or of the datasets of a snapshot."""
    named = Reference.parse(reference)
    if named.kind == KIND:
        return [named]
    datasets = {str(named), *store.manifest(named).derived_from.values()}
    return [each for each in store.references(KIND) if store.manifest(each).derived_from.get("dataset") in datasets]
