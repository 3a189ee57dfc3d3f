"""Retrieves a training set: entity rows, their labels, and a feature service joined point-in-time through Feast."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from feast import FeatureStore

from gatehouse.features.computing.on_demand import with_on_demand
from gatehouse.features.database import quoted, rows_of, write_parquet
from gatehouse.features.definitions.repository import Repository


@dataclass(frozen=True)
class TrainingSet:
    """A training set and the kinds of its columns.

    Attributes:
        table: Entity keys, decision_time, label, label_time, columns kept by the label view, request values, features
            of feature views, features of on-demand views; sorted by decision time and keys.
        views: Features by view, as the service lists them.
    """

    table: pa.Table
    views: dict[str, list[str]]
    numeric: list[str]
    categorical: list[str]


def retrieve(feast: FeatureStore, repository: Repository, service: str, rows: pa.Table, workspace: Path) -> TrainingSet:
    """Join the feature service `service` to the entity rows through Feast.

    `rows` has entity keys, decision_time, label, label_time, columns kept by the label view, request values.

    Raises:
        ConfigurationError: if there is no such service, or as `with_on_demand`.
    """
    definition = repository.service(service)
    path = workspace / "entity_rows.parquet"
    write_parquet(rows, path)
    keys = ", ".join(map(quoted, repository.entity_keys))
    query = f"SELECT {keys}, decision_time AS event_timestamp FROM {rows_of([path])}"
    views = {name: list(repository.views[name].spec.features) for name in definition.views}
    stored = [name for names in views.values() for name in names]
    joined = feast.get_historical_features(
        entity_df=query, features=[f"{view}:{name}" for view, names in views.items() for name in names]
    ).to_arrow()
    on_demand = [repository.on_demand[name] for name in definition.on_demand]
    kinds = {name: kind for view in definition.views for name, kind in repository.views[view].spec.features.items()}
    kinds |= {name: kind for view in on_demand for name, kind in view.spec.features.items()}
    table = rows.drop_columns([*repository.request_values().keys() - repository.request_values(service).keys()])
    for name in stored:
        table = table.append_column(name, joined.column(name))
    return TrainingSet(
        table=with_on_demand(on_demand, table, alone=True),
        views=views,
        numeric=[name for name, kind in kinds.items() if kind != "categorical"],
        categorical=[name for name, kind in kinds.items() if kind == "categorical"],
    )
