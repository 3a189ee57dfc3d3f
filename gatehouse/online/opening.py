"""Opens the online store of a project, which `feature_store.yaml` names in Feast's syntax.

The store is `sqlite`, a file beside the artifact store, or `redis` with a connection string, in which environment
variables are replaced.
"""

import os
import re
from pathlib import Path

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.settings import SETTINGS_FILE, read_settings, store_problems
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import OnlineStore
from gatehouse.store.store import ArtifactStore

_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def open_online(store: ArtifactStore, project: str, folder: Path) -> OnlineStore:
    """Open the online store that a feature repository names.

    Args:
        store: The artifact store; an SQLite file is next to it.
        project: Name of the project.
        folder: The feature repository, with its `feature_store.yaml`.

    Raises:
        ConfigurationError: if the settings name another kind of store or of keys, or an environment variable that is
            not set.
        StoreError: if the SQLite file cannot be opened.
    """
    body = read_settings(folder)
    for problem in store_problems(body):
        if not problem.startswith("offline_store"):
            raise ConfigurationError(f"{SETTINGS_FILE}: {problem}.")
    settings = body.get("online_store") or {"type": "sqlite"}
    named = str(body.get("project", ""))
    kind = settings.get("type", "sqlite") if isinstance(settings, dict) else settings
    if kind == "sqlite":
        return SqliteOnline(sqlite_file(store, project), named)
    # Imported here, so that a project with an SQLite store needs no Redis client.
    from gatehouse.online.redis import RedisOnline, connect_redis

    return RedisOnline(connect_redis(_filled(str(settings.get("connection_string", "localhost:6379")))), named)


def sqlite_file(store: ArtifactStore, project: str) -> Path:
    """The SQLite file of a project's online store."""
    return store.local_folder / "online" / project / "online.db"


def _filled(text: str) -> str:
    """A connection string with its environment variables replaced."""
    missing = [name for name in _VARIABLE.findall(text) if name not in os.environ]
    if missing:
        raise ConfigurationError(
            f"{SETTINGS_FILE}: online_store.connection_string names {', '.join(missing)}, which the environment does "
            "not set. Set it to host:port, followed by ,password=... and ,db=... if needed."
        )
    return _VARIABLE.sub(lambda match: os.environ[match[1]], text)
