"""DuckDB inside what this process may use: every connection is opened here. These limits are in no key."""

import hashlib
import os
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from gatehouse import limits
from gatehouse.errors import OutOfMemoryError

if TYPE_CHECKING:
    import duckdb

SHARE = 0.5
"""What DuckDB may have of the memory: results are read from it into this process, which needs as much again."""


def out_of_memory(error: Exception, what: str = "The work") -> OutOfMemoryError | None:
    """In words that memory was not enough, where that is what an error of DuckDB, Arrow or Python says; else None."""
    if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryException":
        return None
    limit = limits.memory() / 1e9
    return OutOfMemoryError(
        f"{what} needs more memory than there is: this process may have {limit:.1f} GB, by its cgroup, `ulimit -d` or "
        f"the machine, of which DuckDB takes {SHARE * limit:.1f} GB; what can wait on disk was there already. Give the "
        "task more (`resources` in project.yaml), or let the query hold less at once, such as shorter windows. "
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
    """Open a database; what does not fit into its memory waits on disk.

    Args:
        file: The database; None for one in memory.
        spill: Folder of what waits, made when first needed; None for one among the temporary files.
        most: Bytes of memory at most; 0 for its share of what this process may have.
        threads: How many; 0 for as many as this process may use.
        settings: Other settings of DuckDB.
    """
    import duckdb

    memory = int(limits.memory() * SHARE)
    # Connections of one process to one file must agree on all settings.
    name = hashlib.sha256(os.fsencode(file.resolve())).hexdigest() if file else uuid.uuid4().hex
    spill = spill or Path(tempfile.gettempdir()) / f"gatehouse-duckdb-{os.getpid()}-{name[:8]}"
    given = {
        "memory_limit": f"{min(memory, most or memory)}B",
        "threads": str(threads or limits.processors()),
        "temp_directory": str(spill),
    }
    return duckdb.connect(str(file or ":memory:"), config={**given, **settings})
