"""Canonical JSON: one byte string for one value, so that a value can be named by its digest; digests of bytes."""

import hashlib
import json
from pathlib import Path
from typing import Any


def canonical_json(value: Any) -> str:
    """Serialise `value` the same way on every machine.

    Keys are sorted, separators carry no space, and the text is ASCII. This is RFC 8785 in spirit; numbers follow
    Python's shortest round-trip form. Raises ValueError if `value` holds NaN or an infinity, which JSON cannot express;
    TypeError if `value` holds something that is not JSON.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest_of(value: Any) -> str:
    """SHA-256 of the canonical JSON of `value`, as 64 hexadecimal digits."""
    return sha256_bytes(canonical_json(value).encode())


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of `data`, as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
