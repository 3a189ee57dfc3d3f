"""Opens the online store of a project, and reads the features of requests from it by key, or computes them."""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow as pa

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.on_demand import with_on_demand
from gatehouse.features.definitions.repository import OnDemand, Repository, View
from gatehouse.features.definitions.settings import SETTINGS_FILE, read_settings, store_problems
from gatehouse.features.exact import DECLARED, cast_values
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import OnlineStore, online_view
from gatehouse.store.store import ArtifactStore

_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def open_online(store: ArtifactStore, project: str, folder: Path) -> OnlineStore:
    """Open the online store that `feature_store.yaml` in `folder` names; an SQLite file is next to the artifact store.

    Raises ConfigurationError if the settings are wrong, or name an environment variable that is not set; StoreError if
    the SQLite file cannot be opened.
    """
    body = read_settings(folder)
    for problem in store_problems(body):
        if not problem.startswith("offline_store"):
            raise ConfigurationError(f"{SETTINGS_FILE}: {problem}.")
    settings = body.get("online_store") or "sqlite"
    settings = settings if isinstance(settings, dict) else {"type": settings}
    if settings.get("type", "sqlite") == "sqlite":
        return SqliteOnline(sqlite_file(store, project), str(body.get("project", "")))
    # Imported here, so that a project with an SQLite store needs no Redis client.
    from gatehouse.online.redis import RedisOnline, connect_redis

    address = str(settings.get("connection_string", "localhost:6379"))
    if missing := [name for name in _VARIABLE.findall(address) if name not in os.environ]:
        raise ConfigurationError(
            f"{SETTINGS_FILE}: online_store.connection_string names {', '.join(missing)}, which the environment does "
            "not set. Set it to host:port, followed by ,password=... and ,db=... if needed."
        )
    address = _VARIABLE.sub(lambda match: os.environ[match[1]], address)
    return RedisOnline(connect_redis(address), str(body.get("project", "")))


def sqlite_file(store: ArtifactStore, project: str) -> Path:
    """The SQLite file of a project's online store."""
    return store.local_folder / "online" / project / "online.db"


def online_features(
    repository: Repository,
    service: str,
    online: OnlineStore,
    requests: Sequence[Mapping[str, object]],
    now: datetime,
) -> pa.Table:
    """One row for each request, in order: entity keys, request values, features; null where nothing is known.

    Raises ConfigurationError if there is no such service, a request lacks a value or has one of another type or that is
    not used, or an on-demand view cannot be computed; StoreError if the online store cannot be reached.
    """
    spec = repository.service(service)
    views = [repository.views[name] for name in spec.views]
    names = dict.fromkeys(key for view in views for key in view.spec.entities)
    types = {key: DECLARED[repository.entities[key]] for key in names}
    types |= {name: DECLARED[kind] for name, kind in repository.request_values(service).items()}
    for number, request in enumerate(requests):
        for name in sorted(types.keys() ^ request.keys()):
            what = "is missing" if name in types else f"is not used{nearest(name, types)}"
            raise ConfigurationError(
                f"Request {number}: {name} {what}: expected {', '.join(types)}, found {', '.join(request)}."
            )
    columns = {
        name: cast_values((request[name] for request in requests), kind, partial("Request {1}: {0}".format, name))
        for name, kind in types.items()
    }
    on_demand = [repository.on_demand[name] for name in spec.on_demand]
    return with_online(online, views, on_demand, pa.table(columns), now)


def with_online(
    online: OnlineStore, views: Sequence[View], on_demand: Sequence[OnDemand], rows: pa.Table, now: datetime
) -> pa.Table:
    """Add a column per feature to rows of entity keys and request values; null where no fresh value is stored at `now`.

    Raises as `OnlineStore.read` and `with_on_demand`.
    """
    features = online.read([online_view(view) for view in views], rows, now)
    for name in features.column_names:
        rows = rows.append_column(name, features[name])
    return with_on_demand(on_demand, rows)
