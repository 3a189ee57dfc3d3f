"""Files that are there whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any


def write_json(path: Path, body: dict[str, Any], unique: str = "") -> None:
    """Write JSON that is there whole or not at all.

    Args:
        path: Where.
        body: What.
        unique: Tells writers apart that may write the same file at the same time.
    """
    temporary = path.with_suffix(f".tmp{unique}")
    temporary.write_text(json.dumps(body, sort_keys=True))
    os.replace(temporary, path)
