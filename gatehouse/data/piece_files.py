"""The files of tables, shared out among pieces: each has files of one or several tables, whole and in order."""

from collections.abc import Collection, Mapping

from gatehouse.pieces.piece import batches
from gatehouse.store.identity import Spec
from gatehouse.store.store import ArtifactStore


class PieceFiles(Spec):
    """Files of one table."""

    table: str
    dataset: str
    paths: tuple[str, ...]


def file_batches(
    store: ArtifactStore, datasets: Mapping[str, str], rows: int, tables: Collection[str] | None = None
) -> list[tuple[PieceFiles, ...]]:
    """The files of datasets by table, or of those in `tables`, in pieces of about `rows` rows."""
    chosen = sorted(name for name in datasets if tables is None or name in tables)
    files = [(name, entry) for name in chosen for entry in store.manifest(datasets[name]).files]
    divided = list[tuple[PieceFiles, ...]]()
    for batch in batches(files, [entry.rows or 0 for _, entry in files], rows):
        paths: dict[str, tuple[str, ...]] = {}
        for name, entry in batch:
            paths[name] = (*paths.get(name, ()), entry.path)
        divided.append(tuple(PieceFiles(table=name, dataset=datasets[name], paths=of) for name, of in paths.items()))
    return divided
