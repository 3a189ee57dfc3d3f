"""The pieces of a table whose files lie at an address: workers of a cluster read and store its new files.

A CSV that is larger than a piece is divided into blocks; any other file is read by one worker. On one machine the
threads of `store_parts` use all processors, so pieces would gain nothing. Either way the same function stores the parts
of a file, and their bounds follow from the file alone.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.data.snapshot.csv_blocks import Parts, TableRequest, is_divisible, published, store_blocks
from gatehouse.data.snapshot.parts import Stored, store_parts
from gatehouse.data.snapshot.spec import window_of
from gatehouse.data.sources.base import EarlierPart, Source
from gatehouse.data.sources.catalog import SourceSpec, open_source
from gatehouse.data.sources.file_reader import FileReader
from gatehouse.data.sources.files import FolderSource
from gatehouse.pieces.engine import engine_of
from gatehouse.pieces.piece import Call, batches, piece, run_pieces
from gatehouse.runtime.variables import ENGINE
from gatehouse.store.store import ArtifactStore

BYTES = 1 << 26
"""About how many bytes of files a piece has, as they lie there; a multiple of the windows that files are read in."""


class FilesRequest(TableRequest):
    """Files of a table, by name with the identity of their content, of which rows within a window are stored."""

    window: str
    identities: dict[str, str]


@piece
def store_files(request: FilesRequest, store: ArtifactStore) -> Parts:
    """Store the parts of files. Raises SourceError if a file is gone, changed, or cannot be read as declared."""
    with open_source(request.ordered, request.location, store) as source:
        assert isinstance(source, FileReader)
        parts = source.parts(request.table, (), request.identities)
        return published(store_parts(parts, request.declared, window_of(request.window), {}, store), store)


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
    new, large = list[Mapping[str, Any]](), list[Mapping[str, Any]]()
    if (
        engine_of(os.environ.get(ENGINE, "")).kind != "local"
        and isinstance(spec, FolderSource)
        and isinstance(source, FileReader)
        and "://" in source.place
        and not table.sort_on_ingest
    ):
        old = {part.position["identity"] for part in before}
        new = [file for file in state["files"] if file["identity"] not in old]
        large = [file for file in new if is_divisible(spec.tables[name], file, BYTES)]
    if not large and len(batches(new, [file["bytes"] for file in new], BYTES)) < 2:
        # The start of a cluster costs more than it saves.
        return store_parts(source.parts(name, earlier), table, window_of(window), parts_before, store)
    assert isinstance(source, FileReader) and isinstance(spec, FolderSource)
    known = {file["name"]: file["identity"] for file in state["files"]}
    for file in new:
        del known[file["name"]]
    stored = store_parts(source.parts(name, earlier, known), table, window_of(window), parts_before, store)
    alone, columns = spec.model_copy(update={"tables": {name: table}}), tuple(table.columns)
    body: dict[str, Any] = {"source": alone, "table": name, "columns": columns, "location": source.place}
    divided = store_blocks(body, large, BYTES, window, store)
    whole, calls = [file for file in new if file["name"] not in divided], list[Call]()
    for batch in batches(whole, [file["bytes"] for file in whole], BYTES):
        identities = {file["name"]: file["identity"] for file in batch}
        calls.append((store_files, FilesRequest(**body, window=window, identities=identities)))
    results: list[Parts] = run_pieces(store, calls)
    stored += [part for parts in divided.values() for part in parts]
    stored += [Stored.from_json(part) for result in results for part in result.parts]
    order = {file["name"]: number for number, file in enumerate(state["files"])}
    return sorted(stored, key=lambda part: order[part.position["file"]])
