"""Features of online requests: read by key from the online store, or computed from request values."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa

from gatehouse.components.features.computing.on_demand import with_on_demand
from gatehouse.components.features.definitions.repository import OnDemand, Repository, View
from gatehouse.components.features.online.store import OnlineStore, online_view
from gatehouse.errors import ConfigurationError
from gatehouse.yaml_lines import nearest

_KEYS = {"string": pa.string(), "int64": pa.int64()}
_VALUES = {"numeric": pa.float64(), "double": pa.float64(), "categorical": pa.string()}


def online_features(
    repository: Repository,
    service: str,
    online: OnlineStore,
    requests: Sequence[Mapping[str, object]],
    now: datetime,
) -> pa.Table:
    """The table of features for online requests, in the form in which a predictor also scores a batch.

    Args:
        repository: The feature definitions that the online store was written with.
        service: The feature service of the model.
        online: The online store.
        requests: Entity keys and request values by name.
        now: The moment of the requests, with its zone.

    Returns:
        One row for each request, in order: entity keys, request values, features; null where nothing is known.

    Raises:
        ConfigurationError: if there is no such service; if a request lacks a key or value, has a value of another type
            or one that is not used; or if an on-demand view cannot be computed.
        StoreError: if the online store cannot be reached.
    """
    wanted = repository.service(service)
    views = [repository.views[name] for name in wanted.views]
    names = dict.fromkeys(key for view in views for key in view.spec.entities)
    types = {key: _KEYS[repository.entities[key]] for key in names}
    types |= {name: _VALUES[kind] for name, kind in repository.request_values(service).items()}
    rows = pa.table(_columns(requests, types))
    return with_online(online, views, [repository.on_demand[name] for name in wanted.on_demand], rows, now)


def with_online(
    online: OnlineStore, views: Sequence[View], on_demand: Sequence[OnDemand], rows: pa.Table, now: datetime
) -> pa.Table:
    """Add features from the online store and features of on-demand views to `rows`.

    Args:
        online: The online store.
        views: The views to read.
        on_demand: The on-demand views to compute from the values read.
        rows: Entity keys and request values, shape (requests, columns).
        now: The moment of the read, with its zone.

    Returns:
        The same rows in the same order, with one column more per feature; null where no fresh value is stored.

    Raises:
        ConfigurationError: if a key is missing or has another type than the view's; or as `with_on_demand`.
        StoreError: if the online store cannot be reached.
    """
    found = online.read([online_view(view) for view in views], rows, now)
    for name in found.column_names:
        rows = rows.append_column(name, found[name])
    return with_on_demand(on_demand, rows)


def _columns(requests: Sequence[Mapping[str, object]], types: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
    columns = {}
    for number, request in enumerate(requests):
        if unread := sorted(request.keys() - types.keys()):
            raise ConfigurationError(
                f"Request {number}: expected {', '.join(types)}, found also {', '.join(unread)}, which nothing reads"
                f"{nearest(unread[0], types)}. Leave it out."
            )
    for name, kind in types.items():
        for number, request in enumerate(requests):
            if name not in request:
                raise ConfigurationError(
                    f"Request {number}: {name} is missing, found {', '.join(request)}. Send null where it is not known."
                )
        try:
            columns[name] = pa.array([_number(request[name], kind) for request in requests], kind, from_pandas=True)
        except (pa.ArrowException, OverflowError) as error:
            reason = " ".join(str(error).split())
            raise ConfigurationError(f"Requests: {name}: expected values of type {kind}: {reason}.") from error
    return columns


def _number(value: object, kind: pa.DataType) -> object:
    """Convert an integer for a double column, as Arrow refuses integers that a double cannot hold; bool is an error."""
    if isinstance(value, bool | np.bool_):
        raise pa.ArrowTypeError(f"found {value}, which is a truth value")
    if isinstance(value, int) and pa.types.is_floating(kind):
        return float(value)
    return value
