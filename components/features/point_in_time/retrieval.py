"""Retrieves a training set: entity rows, their labels, and a feature service joined point-in-time through Feast."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from feast import FeatureStore
from feast.errors import FeastObjectNotFoundException

from gatehouse.components.features.computing.compute import quoted, rows_of, write_parquet
from gatehouse.components.features.computing.on_demand import with_on_demand
from gatehouse.components.features.definitions.repository import Repository
from gatehouse.errors import ConfigurationError


@dataclass(frozen=True)
class TrainingSet:
    """A training set and what its columns are.

    Attributes:
        table: Entity keys, decision_time, label, label_time, values of requests, then the features; sorted by decision
            time and keys.
        views: Features by view, as the service lists them.
        on_demand: Features by on-demand view, likewise; they are computed here, from the rest of their row.
        numeric: Names of the numeric features.
        categorical: Names of the categorical features.
    """

    table: pa.Table
    views: dict[str, list[str]]
    on_demand: dict[str, list[str]]
    numeric: list[str]
    categorical: list[str]


def retrieve(feast: FeatureStore, repository: Repository, service: str, rows: pa.Table, workspace: Path) -> TrainingSet:
    """Join the feature service `service` to the entity rows through Feast.

    Args:
        feast: The applied feature repository.
        repository: Its definitions.
        service: Name of the feature service.
        rows: Entity keys, decision_time, label, label_time, values of requests.
        workspace: Where the entity rows are laid for Feast's query.

    Raises:
        ConfigurationError: if there is no such service, or as `with_on_demand`.
    """
    try:
        wanted = feast.get_feature_service(service)
    except FeastObjectNotFoundException as error:
        known = ", ".join(sorted(one.name for one in feast.list_feature_services())) or "none"
        raise ConfigurationError(f"There is no feature service {service!r}: expected one of {known}.") from error
    path = workspace / "entity_rows.parquet"
    write_parquet(rows, path)
    keys = ", ".join(map(quoted, repository.entity_keys))
    query = f"SELECT {keys}, decision_time AS event_timestamp FROM {rows_of([path])}"
    projections = [one for one in wanted.feature_view_projections if one.name in repository.views]
    views = {projection.name: [field.name for field in projection.features] for projection in projections}
    joined = feast.get_historical_features(
        entity_df=query, features=[f"{view}:{name}" for view, names in views.items() for name in names]
    ).to_arrow()
    stored = [name for names in views.values() for name in names]
    on_demand = {
        name: list(repository.on_demand[name].spec.features) for name in repository.services[service].on_demand
    }
    features = [*stored, *(name for names in on_demand.values() for name in names)]
    defined = [view.spec.features for view in repository.views.values()]
    defined += [view.spec.features for view in repository.on_demand.values()]
    kinds = {name: kind for one in defined for name, kind in one.items()}
    table = rows.drop_columns([*repository.request_values().keys() - repository.request_values(service).keys()])
    for name in stored:
        table = table.append_column(name, joined.column(name))
    return TrainingSet(
        table=with_on_demand(repository, service, table, alone=True),
        views=views,
        on_demand=on_demand,
        numeric=[name for name in features if kinds[name] == "numeric"],
        categorical=[name for name in features if kinds[name] == "categorical"],
    )
