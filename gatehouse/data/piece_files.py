"""The files of tables, shared out among pieces: each has files of one or several tables, whole and in order."""

from collections.abc import Collection, Mapping
from pathlib import Path

from gatehouse.pieces.piece import batches
from gatehouse.store.identity import Spec
from gatehouse.store.manifest import FileEntry
from gatehouse.store.objects.base import side_by_side
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore


class PieceFiles(Spec):
    """Files of one table."""

    table: str
    dataset: str
    paths: tuple[str, ...]

    def entries(self, store: ArtifactStore) -> list[FileEntry]:
        """The files as the table's manifest has them."""
        names = {*self.paths}
        return [entry for entry in store.manifest(self.dataset).files if entry.path in names]

    def local(self, store: ArtifactStore) -> list[Path]:
        """The verified files on this machine."""
        store.require_readable(self.dataset)
        dataset = Reference.parse(self.dataset)
        return side_by_side(store.objects, lambda entry: store.verified_path(dataset, entry), self.entries(store))


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
