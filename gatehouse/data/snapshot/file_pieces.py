"""The pieces of a table whose files lie at an address: workers of a cluster read and store its new files.

A CSV that is larger than a piece is cut into blocks; any other file is read by one worker.

On one machine the threads of `store_parts` use all processors, so pieces would gain nothing. Either way the same
function stores the parts of a file, and their bounds follow from the file alone.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.data.snapshot.csv_blocks import is_divisible, published, store_blocks
from gatehouse.data.snapshot.parts import Stored, store_parts
from gatehouse.data.snapshot.spec import TableSpec, window_of
from gatehouse.data.sources.base import EarlierPart, Source
from gatehouse.data.sources.catalog import SourceSpec, open_source
from gatehouse.data.sources.file_reader import FileReader
from gatehouse.data.sources.files import FolderSource
from gatehouse.errors import SourceError
from gatehouse.pieces.engine import engine_of
from gatehouse.pieces.piece import Call, batches, piece, run_pieces
from gatehouse.runtime.variables import ENGINE
from gatehouse.store.identity import operational
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

BYTES = 1 << 26
"""About how many bytes of files a piece has, as they lie there; a multiple of the windows that files are read in."""


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
    return FilesResult(**published(stored, store))


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
    new, known = list[Mapping[str, Any]](), dict[str, str]()
    if engine_of(os.environ.get(ENGINE, "")).kind != "local" and _is_reachable(source, table):
        old = {part.position["identity"] for part in before}
        new = [file for file in state["files"] if file["identity"] not in old]
        known = {file["name"]: file["identity"] for file in state["files"] if file["identity"] in old}
    if sum(file["bytes"] for file in new) <= BYTES:  # The start of a cluster costs more than it saves.
        return store_parts(source.parts(name, earlier), table, window_of(window), parts_before, store)
    assert isinstance(source, FileReader) and isinstance(spec, FolderSource)
    stored = store_parts(source.parts(name, earlier, known), table, window_of(window), parts_before, store)
    alone, columns = spec.model_copy(update={"tables": {name: table}}), tuple(table.columns)
    body: dict[str, Any] = {"source": alone, "table": name, "columns": columns, "location": source.place}
    whole = list[Mapping[str, Any]]()
    for file in new:
        if is_divisible(alone, name, file["name"], file["bytes"], BYTES):
            try:
                content = {"file": file["name"], "identity": file["identity"]}
                stored += store_blocks(body | content, file["bytes"], BYTES, window, store)
                continue
            except SourceError as error:  # Of rows, or of where they begin; the whole file says which.
                logger.info("%s is read by one worker: %s", file["name"], error)
        whole.append(file)
    calls = list[Call]()
    for batch in batches(whole, [file["bytes"] for file in whole], BYTES):
        identities = {file["name"]: file["identity"] for file in batch}
        calls.append((store_files, FilesRequest(**body, window=window, identities=identities)))
    for result in run_pieces(store, calls):
        stored += map(Stored.from_json, result.parts)
    order = {file["name"]: number for number, file in enumerate(state["files"])}
    return sorted(stored, key=lambda part: order[part.position["file"]])


def _is_reachable(source: Source, table: TableSpec) -> bool:
    """Whether workers of a cluster reach the files of a table, and may read each alone."""
    return isinstance(source, FileReader) and "://" in source.place and not table.sort_on_ingest
