"""JSON records beside artifacts, such as markers and events of runs: created once, never changed."""

import base64
import getpass
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gatehouse.errors import CorruptArtifactError, MissingArtifactError
from gatehouse.store.objects.base import ObjectStore, side_by_side

USER = "GATEHOUSE_USER"
_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def create_record(objects: ObjectStore, key: str, body: Mapping[str, Any]) -> bool:
    """Create the record `key`; False if it exists."""
    return objects.put_bytes(key, (json.dumps(body, sort_keys=True, indent=1) + "\n").encode())


def read_record(objects: ObjectStore, key: str) -> dict[str, Any] | None:
    """The record `key`, or None if it is gone. Raises CorruptArtifactError if it is not a JSON object."""
    try:
        body = json.loads(objects.get_bytes(key))
        problem = "" if isinstance(body, dict) else type(body).__name__
    except MissingArtifactError:
        return None
    except (ValueError, RecursionError) as error:
        problem = str(error)
    if problem:
        raise CorruptArtifactError(
            f"{key}: expected a JSON object, found: {problem}. Restore it from a copy, or remove it."
        )
    return dict(body)


def read_records(objects: ObjectStore, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The existing records, by key, read in parallel. Raises CorruptArtifactError if one is not a JSON object."""
    keys = list(keys)
    bodies = side_by_side(objects, lambda key: read_record(objects, key), keys)
    return {key: body for key, body in zip(keys, bodies, strict=True) if body is not None}


def remove_record(objects: ObjectStore, key: str) -> None:
    """Remove a record, if it exists."""
    if (stat := objects.stat(key)) is not None:
        objects.delete(key, stat.generation)


def flat(values: Mapping[str, Any], head: str = "") -> dict[str, Any]:
    """The values of nested mappings, by dotted name.

    Example:
        >>> flat({"optimizer": {"learning_rate": 0.1}, "seed": 3})
        {'optimizer.learning_rate': 0.1, 'seed': 3}
    """
    dotted: dict[str, Any] = {}
    for name, value in values.items():
        dotted |= flat(value, f"{head}{name}.") if isinstance(value, Mapping) else {f"{head}{name}": value}
    return dotted


def changes(first: Any, second: Any, *, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path and both values of every difference between two JSON objects; None for a missing value."""
    if isinstance(first, dict) and isinstance(second, dict):
        for name in sorted({*first, *second}):
            yield from changes(first.get(name), second.get(name), path=f"{path}.{name}" if path else name)
    elif first != second:
        yield path, first, second


def claim(objects: ObjectStore, key: str, lapses: float) -> bool:
    """Create a record that one process holds while it works; one older than `lapses` seconds was left by a killed one.

    The holder removes it when it has recorded what it did, or failed.
    """
    if (stat := objects.stat(key)) and time.time() - stat.modified > lapses:
        objects.delete(key, stat.generation)
    return create_record(objects, key, author())


def author(by: str = "") -> dict[str, str]:
    """Author and time of a record, by this machine's clock; by default the author is the user of this process."""
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
