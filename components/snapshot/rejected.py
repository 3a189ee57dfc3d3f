"""The rows of a table that were set aside, counted by what was wrong with them, with examples of each."""

from collections import Counter
from dataclasses import dataclass

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore

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
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    counts: Counter[tuple[str, str]] = Counter()
    firsts: dict[tuple[str, str], list[Example]] = {}
    for path in store.paths(Reference.parse(reference)):
        for batch in pq.ParquetFile(path).iter_batches():
            kinds = pa.Table.from_batches([batch]).group_by(["column", "reason"], use_threads=False)
            for one in kinds.aggregate([([], "count_all")]).to_pylist():
                key = one["column"], one["reason"]
                counts[key] += one["count_all"]
                held = firsts.setdefault(key, [])
                if len(held) < examples:
                    mine = pc.and_(pc.equal(batch["column"], key[0]), pc.equal(batch["reason"], key[1]))
                    rows = batch.filter(mine).slice(0, examples - len(held))
                    held += [Example(**row) for row in rows.select(["place", "found", "raw"]).to_pylist()]
    ordered = sorted(counts, key=lambda key: (-counts[key], key))
    return [Group(*key, counts[key], tuple(firsts[key])) for key in ordered]


def rejected_of(store: ArtifactStore, reference: Reference | str) -> list[Reference]:
    """The rejected rows that an artifact stands for: its own, those of a dataset, or of the datasets of a snapshot."""
    named = Reference.parse(reference)
    if named.kind == KIND:
        return [named]
    datasets = {str(named), *store.manifest(named).derived_from.values()}
    return [each for each in store.references(KIND) if store.manifest(each).derived_from.get("dataset") in datasets]
