"""The features of online requests: read by their keys from the online store, computed from what the requests carry."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from gatehouse.components.features.computing.on_demand import with_on_demand
from gatehouse.components.features.definitions.repository import Repository
from gatehouse.components.features.online.store import OnlineStore, online_view
from gatehouse.errors import ConfigurationError

_KEYS = {"string": pa.string(), "int64": pa.int64()}
_VALUES = {"numeric": pa.float64(), "categorical": pa.string()}


def online_features(
    repository: Repository,
    service: str,
    online: OnlineStore,
    requests: Sequence[Mapping[str, object]],
    now: datetime,
) -> pa.Table:
    """What a model reads for each request: the table that a predictor scores, as it scores a batch.

    Args:
        repository: The feature definitions that the online store was written with.
        service: The feature service of the model.
        online: The online store.
        requests: Entity keys and request values by name; further names are left alone.
        now: The moment of the requests, with its zone.

    Returns:
        One row for each request, in order: entity keys, request values, features; null where nothing is known.

    Raises:
        ConfigurationError: if there is no such service, a request lacks a key or a value, or has one of another type;
            or if an on-demand view cannot be computed.
    """
    if service not in repository.services:
        known = ", ".join(sorted(repository.services)) or "none"
        raise ConfigurationError(f"There is no feature service {service!r}: expected one of {known}.")
    views = [online_view(repository.views[name]) for name in repository.services[service].views]
    names = dict.fromkeys(key for view in views for key in view.keys)
    keys = _columns(requests, {key: _KEYS[repository.entities[key]] for key in names})
    values = {name: _VALUES[kind] for name, kind in repository.request_values(service).items()}
    table = pa.table({**keys, **_columns(requests, values)})
    found = online.read(views, table, now)
    for name in found.column_names:
        table = table.append_column(name, found[name])
    return with_on_demand(repository, service, table)


def _columns(requests: Sequence[Mapping[str, object]], types: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
    columns = {}
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
    """Any integer may stand for a double; Arrow takes only those that a double holds exactly."""
    if isinstance(value, int) and not isinstance(value, bool) and pa.types.is_floating(kind):
        return float(value)
    return value
