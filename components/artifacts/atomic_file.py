"""Files that are there whole or not at all."""

import json
import os
import uuid
from pathlib import Path
from typing import Any


def write_json(path: Path, body: dict[str, Any]) -> None:
    """Write JSON that is there whole or not at all."""
    write_bytes(path, json.dumps(body, sort_keys=True).encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file in one go, also where others write it at the same time, or on other machines: the last one stays."""
    half = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    half.write_bytes(data)
    os.replace(half, path)
