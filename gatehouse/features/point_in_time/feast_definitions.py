"""Makes Feast objects from the repository's definitions, so that users write keys, freshness and features once."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
from feast import (
    Entity,
    FeatureService,
    FeatureView,
    Field,
    FileSource,
    OnDemandFeatureView,
    RequestSource,
    ValueType,
)
from feast.types import FeastType, Float32, Float64, Int64, String

from gatehouse.features.computing.on_demand import on_demand_features
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.features.definitions.repository import OnDemand, Repository, View, read_repository
from gatehouse.features.point_in_time.offline_store import EVENT_TIME_ONLY, POINT_IN_TIME

_VALUE_TYPES = {"string": ValueType.STRING, "int64": ValueType.INT64}
_KEY_TYPES: dict[str, FeastType] = {"string": String, "int64": Int64}
_FEATURE_TYPES: dict[str, FeastType] = {"numeric": Float32, "double": Float64, "categorical": String}
FeastObject = Entity | FeatureView | OnDemandFeatureView | FeatureService


def feast_objects_in(folder: Path) -> dict[str, FeastObject]:
    """The Feast objects of the repository in `folder`, by name. Raises ConfigurationError as `read_repository`."""
    return feast_objects(read_repository(folder))


def feast_objects(repository: Repository) -> dict[str, FeastObject]:
    """Entities, feature views and feature services as Feast has them, by name.

    A view reads `data/<name>.parquet` beside the definitions: a file, or a folder of files.
    """
    entities = {
        name: Entity(name=name, join_keys=[name], value_type=_VALUE_TYPES[kind])
        for name, kind in repository.entities.items()
    }
    views = {name: _feature_view(repository, view, entities) for name, view in repository.views.items()}
    on_demand = {name: _on_demand_view(view, views) for name, view in repository.on_demand.items()}
    services = {
        name: FeatureService(
            name=name,
            features=[*(views[view] for view in service.views), *(on_demand[view] for view in service.on_demand)],
            description=service.description,
        )
        for name, service in repository.services.items()
    }
    kinds: list[dict[str, FeastObject]] = [{**entities}, {**views}, {**on_demand}, {**services}]
    return {f"{type(item).__name__}_{name}": item for kind in kinds for name, item in kind.items()}


class DeclaredOnDemandView(OnDemandFeatureView):
    """An on-demand view whose features are taken as declared: Feast would run its query on sample values."""

    def infer_features(self) -> None:
        """Do nothing: the features are declared."""


def _on_demand_view(view: OnDemand, views: dict[str, FeatureView]) -> OnDemandFeatureView:
    """A Feast view that calls the same function as training sets and online requests."""
    spec = view.spec

    def computed(rows: pd.DataFrame) -> pd.DataFrame:
        features: pd.DataFrame = on_demand_features(view, pa.Table.from_pandas(rows, preserve_index=False)).to_pandas()
        return features

    requested = [Field(name=name, dtype=_FEATURE_TYPES[kind]) for name, kind in spec.request.items()]
    request = [RequestSource(name=f"{view.name}_request", schema=requested)] if requested else []
    return DeclaredOnDemandView(
        name=view.name,
        sources=[*(views[name] for name in spec.views), *request],
        schema=[Field(name=name, dtype=_FEATURE_TYPES[kind]) for name, kind in spec.features.items()],
        udf=computed,  # type: ignore[arg-type]  # Feast names the class of functions
        udf_string=view.query,
        mode="pandas",
        description=spec.description,
    )


def _feature_view(repository: Repository, view: View, entities: dict[str, Entity]) -> FeatureView:
    spec = view.spec
    table = FileSource(
        name=f"{view.name}_table",
        path=str(repository.folder / "data" / f"{view.name}.parquet"),
        timestamp_field=EVENT_TIMESTAMP,
        created_timestamp_column=KNOWN_FROM,
    )
    return FeatureView(
        name=view.name,
        entities=[entities[key] for key in spec.entities],
        ttl=spec.ttl,
        schema=[
            *(Field(name=key, dtype=_KEY_TYPES[repository.entities[key]]) for key in spec.entities),
            *(Field(name=feature, dtype=_FEATURE_TYPES[kind]) for feature, kind in spec.features.items()),
        ],
        source=table,
        tags={"version": str(spec.version)} | ({POINT_IN_TIME: EVENT_TIME_ONLY} if spec.event_time_only else {}),
        description=spec.description,
    )
