"""Opens all DuckDB connections, within the limits of this process. The limits are in no key."""

import hashlib
import os
import tempfile
import uuid
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gatehouse.errors import OutOfMemoryError, StoreError
from gatehouse.runtime import limits
from gatehouse.store.atomic_file import disk_full

if TYPE_CHECKING:
    import duckdb

SHARE = 0.5
"""DuckDB's share of the memory: its results are read into this process, which needs as much again."""


def out_of_memory(error: Exception, what: str = "The work") -> OutOfMemoryError | StoreError | None:
    """An error in words if DuckDB, Arrow or Python reports that memory was not enough, or the disk in its place."""
    if full := disk_full(error):
        return full
    # Through a reader of Arrow, DuckDB's error comes as an OSError.
    of_duckdb = type(error).__name__ == "OutOfMemoryException" or str(error).startswith("Out of Memory Error")
    if not isinstance(error, MemoryError) and not of_duckdb:
        return None
    limit = limits.memory() / 1e9
    return OutOfMemoryError(
        f"{what} ran out of memory: this process may use {limit:.1f} GB, and DuckDB {SHARE * limit:.1f} GB of it. Give "
        "the task more memory (`resources` in project.yaml), or make the query hold fewer rows at once. "
        f"{type(error).__name__}: {' '.join(str(error).split('Possible solutions')[0].split())}"
    )


def connect(
    file: Path | None = None,
    *,
    spill: Path | None = None,
    most: int = 0,
    threads: int = 0,
    **settings: str,
) -> "duckdb.DuckDBPyConnection":
    """Open a database, by default in memory; data that does not fit into its memory is kept on disk, in `spill`.

    `most` is the maximum bytes of memory, by default DuckDB's share of the process's memory; `threads` by default as
    many as this process may use. Other settings are DuckDB's.
    """
    import duckdb

    memory = int(limits.memory() * SHARE)
    # Connections of one process to one file must agree on all settings.
    name = hashlib.sha256(os.fsencode(file.resolve())).hexdigest() if file else uuid.uuid4().hex
    spill = spill or Path(tempfile.gettempdir()) / f"gatehouse-duckdb-{os.getpid()}-{name[:8]}"
    limited = {
        "memory_limit": f"{min(memory, most or memory)}B",
        "threads": str(threads or limits.processors()),
        "temp_directory": str(spill),
    }
    return duckdb.connect(str(file or ":memory:"), config={**limited, **settings})


def quoted(name: str) -> str:
    """A name as an SQL identifier, with any characters in it."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: object) -> str:
    """A text as an SQL literal, with any characters in it."""
    return "'" + str(text).replace("'", "''") + "'"


def time_literal(moment: datetime) -> str:
    """A moment as an SQL literal, with a time zone where `moment` has one."""
    return f"{'TIMESTAMPTZ' if moment.tzinfo else 'TIMESTAMP'} '{moment.isoformat()}'"
