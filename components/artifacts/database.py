"""DuckDB inside what this process may use: every connection is opened here. These limits are in no key."""

import hashlib
import os
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from gatehouse import limits

if TYPE_CHECKING:
    import duckdb

SHARE = 0.5
"""What DuckDB may have of the memory: results are read from it into this process, which needs as much again."""


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
