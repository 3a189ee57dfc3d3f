"""JSON records beside artifacts, such as leases, tombstones and markers: created once, never changed."""

import base64
import getpass
import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gatehouse.errors import CorruptArtifactError, MissingArtifactError
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.objects.parallel import side_by_side

USER = "GATEHOUSE_USER"
_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def create_record(objects: ObjectStore, key: str, body: Mapping[str, Any]) -> bool:
    """Create the record `key`; False if it exists."""
    return objects.put_bytes(key, (json.dumps(body, sort_keys=True, indent=1) + "\n").encode())


def read_record(objects: ObjectStore, key: str) -> dict[str, Any] | None:
    """The record `key`, or None if it is gone.

    Raises:
        CorruptArtifactError: if it is not a JSON object.
    """
    try:
        body = json.loads(objects.get_bytes(key))
    except MissingArtifactError:
        return None
    except (ValueError, RecursionError) as error:
        raise _unreadable(key, str(error)) from error
    if not isinstance(body, dict):
        raise _unreadable(key, f"found {type(body).__name__}")
    return body


def read_records(objects: ObjectStore, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The existing records, by key, read in parallel.

    Raises:
        CorruptArtifactError: if one of them is not a JSON object.
    """
    wanted = list(keys)
    found = side_by_side(objects, lambda key: read_record(objects, key), wanted)
    return {key: body for key, body in zip(wanted, found, strict=True) if body is not None}


def author(by: str = "") -> dict[str, str]:
    """Author and time of a record, by this machine's clock.

    Args:
        by: The author; empty for the user of this process.
    """
    return {"by": by or whoami(), "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def whoami() -> str:
    """The user of this process: `GATEHOUSE_USER`, else the pod's service account, else the system's user.

    This is what the environment claims. To rely on it, set the variable where users cannot change it, as a server does.
    """
    try:
        return os.environ.get(USER, "").strip() or _service_account() or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _service_account() -> str:
    """`system:serviceaccount:<namespace>:<name>` from the pod's token; empty outside a cluster."""
    try:
        body = _TOKEN.read_text().split(".")[1]
        return str(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["sub"])
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return ""


def remove_record(objects: ObjectStore, key: str) -> None:
    """Remove a record, if it exists."""
    found = objects.stat(key)
    if found is not None:
        objects.delete(key, found.generation)


def _unreadable(key: str, found: str) -> CorruptArtifactError:
    return CorruptArtifactError(f"{key}: expected a JSON object, {found}. Restore it from a copy, or remove it.")
