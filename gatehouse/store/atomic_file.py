"""Files that are replaced atomically: a reader finds the old content or the new content."""

import errno
import json
import os
import uuid
from pathlib import Path
from typing import Any

from gatehouse.errors import StoreError


def write_json(path: Path, body: dict[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_bytes(path, json.dumps(body, sort_keys=True).encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically. If several processes or machines write it at the same time, the last one wins."""
    half = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    half.write_bytes(data)
    os.replace(half, path)


def sync(path: Path) -> None:
    """Wait until the disk holds a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def disk_full(error: Exception) -> StoreError | None:
    """The error of a full disk in words; None for any other error."""
    # DuckDB has no number of the system for it, and calls it memory where its own limit, the room on the disk, is met.
    text = str(error)
    if "max_temp_directory_size" in text or (text.startswith("IO Error") and "No space left on device" in text):
        return StoreError(
            "The disk is full while DuckDB kept rows there that do not fit into memory. Free space, point TMPDIR and "
            "the store to another disk, or give the task more memory."
        )
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    place = f" while {error.filename} was written" if error.filename else ""
    return StoreError(f"The disk is full{place}. Free space, or point TMPDIR and the store to another disk.")
