"""The pieces of a table whose files lie at an address: workers of a cluster read and store its new files.

On one machine the threads of `store_parts` use all processors, so pieces would gain nothing. Either way the same
function stores the parts of a file, and their bounds follow from the file alone.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.data.snapshot.parts import Stored, store_parts
from gatehouse.data.snapshot.spec import window_of
from gatehouse.data.sources.base import EarlierPart, Source
from gatehouse.data.sources.catalog import SourceSpec, open_source
from gatehouse.data.sources.file_reader import FileReader
from gatehouse.data.sources.files import FolderSource
from gatehouse.pieces.engine import engine_of
from gatehouse.pieces.piece import KIND, Call, batches, piece, run_pieces
from gatehouse.runtime.variables import ENGINE
from gatehouse.store.identity import operational
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

BYTES = 1 << 26
"""About how many bytes of files a piece has, as they lie there."""


class FilesRequest(StageModel):
    """Files of a table, by name with the identity of their content, of which rows within a window are stored.

    `source` has this table alone, and `columns` the order of its columns, which JSON does not keep.
    """

    source: FolderSource
    table: str
    columns: tuple[str, ...]
    window: str
    identities: dict[str, str]
    location: str = operational("")


class FilesResult(StageModel):
    """The parts in order, as records keep them, and the artifact with their files."""

    parts: tuple[dict[str, Any], ...]
    files: str


@piece
def store_files(request: FilesRequest, store: ArtifactStore) -> FilesResult:
    """Store the parts of files. Raises SourceError if a file is gone, changed, or cannot be read as declared."""
    declared = request.source.tables[request.table]
    table = declared.model_copy(update={"columns": {name: declared.columns[name] for name in request.columns}})
    spec = request.source.model_copy(update={"tables": {request.table: table}})
    with open_source(spec, request.location, store) as source:
        assert isinstance(source, FileReader)
        parts = source.parts(request.table, (), request.identities)
        stored = store_parts(parts, table, window_of(request.window), {}, store)
    blobs = {f"part-{number:05d}.parquet": part.blob for number, part in enumerate(stored)}
    blobs |= {f"rejected-{number:05d}.parquet": part.rejected for number, part in enumerate(stored)}
    files = {path: blob.entry(path) for path, blob in blobs.items() if blob}
    return FilesResult(parts=tuple(part.to_json() for part in stored), files=str(store.publish(KIND, "parts", files)))


def store_table(
    source: Source,
    spec: SourceSpec,
    name: str,
    window: str,
    state: Mapping[str, Any],
    before: Sequence[Stored],
    store: ArtifactStore,
) -> list[Stored]:
    """Store the parts of a table, in order; `before` are those of the earlier snapshot, `state` is what was looked at.

    Raises SourceError if the table cannot be read as declared.
    """
    table, earlier = spec.tables[name], tuple(EarlierPart(part.fingerprint, part.position) for part in before)
    parts_before = {part.fingerprint: part for part in before if part.fingerprint}
    calls, known = list[Call](), dict[str, str]()
    if engine_of(os.environ.get(ENGINE, "")).kind != "local" and isinstance(spec, FolderSource):
        calls, known = _new_files(source, spec, name, window, state, before)
    if len(calls) < 2:  # The start of a cluster costs more than it saves.
        return store_parts(source.parts(name, earlier), table, window_of(window), parts_before, store)
    assert isinstance(source, FileReader)
    stored = store_parts(source.parts(name, earlier, known), table, window_of(window), parts_before, store)
    for result in run_pieces(store, calls):
        stored += map(Stored.from_json, result.parts)
    order = {file["name"]: number for number, file in enumerate(state["files"])}
    return sorted(stored, key=lambda part: order[part.position["file"]])


def _new_files(
    source: Source, spec: FolderSource, name: str, window: str, state: Mapping[str, Any], before: Sequence[Stored]
) -> tuple[list[Call], dict[str, str]]:
    """The pieces with new files that a worker can reach, and the identities of the files of the earlier snapshot."""
    if not isinstance(source, FileReader) or "://" not in source.place or spec.tables[name].sort_on_ingest:
        return [], {}
    alone, columns = spec.model_copy(update={"tables": {name: spec.tables[name]}}), tuple(spec.tables[name].columns)
    identities = {part.position["identity"] for part in before}
    new = [file for file in state["files"] if file["identity"] not in identities]
    calls = list[Call]()
    for batch in batches(new, [file["bytes"] for file in new], BYTES):
        content = {file["name"]: file["identity"] for file in batch}
        body: dict[str, Any] = {"table": name, "columns": columns, "window": window, "identities": content}
        calls.append((store_files, FilesRequest(source=alone, **body, location=source.place)))
    return calls, {file["name"]: file["identity"] for file in state["files"] if file["identity"] in identities}
