"""Makes Feast objects from the repository's definitions, so that users write keys, freshness and features once."""

from collections.abc import Mapping

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
from gatehouse.features.definitions.repository import OnDemand, Repository
from gatehouse.features.point_in_time.offline_store import EVENT_TIME_ONLY, POINT_IN_TIME

_VALUE_TYPES = {"string": ValueType.STRING, "int64": ValueType.INT64}
_KEY_TYPES: dict[str, FeastType] = {"string": String, "int64": Int64}
_FEATURE_TYPES: dict[str, FeastType] = {"numeric": Float32, "double": Float64, "categorical": String}
FeastObject = Entity | FeatureView | OnDemandFeatureView | FeatureService


def feast_objects(repository: Repository) -> dict[str, FeastObject]:
    """Entities, feature views and feature services as Feast has them, by name.

    A view reads `data/<name>.parquet` beside the definitions: a file, or a folder of files.
    """
    entities = {
        name: Entity(name=name, join_keys=[name], value_type=_VALUE_TYPES[kind])
        for name, kind in repository.entities.items()
    }
    views: dict[str, FeatureView] = {}
    for name, view in repository.views.items():
        spec = view.spec
        keys = [Field(name=key, dtype=_KEY_TYPES[repository.entities[key]]) for key in spec.entities]
        views[name] = FeatureView(
            name=name,
            entities=[entities[key] for key in spec.entities],
            ttl=spec.ttl,
            schema=[*keys, *_fields(spec.features)],
            source=FileSource(
                name=f"{name}_table",
                path=str(repository.folder / "data" / f"{name}.parquet"),
                timestamp_field=EVENT_TIMESTAMP,
                created_timestamp_column=KNOWN_FROM,
            ),
            tags={"version": str(spec.version)} | ({POINT_IN_TIME: EVENT_TIME_ONLY} if spec.event_time_only else {}),
            description=spec.description,
        )
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

    request = [RequestSource(name=f"{view.name}_request", schema=_fields(spec.request))] if spec.request else []
    return DeclaredOnDemandView(
        name=view.name,
        sources=[*(views[name] for name in spec.views), *request],
        schema=_fields(spec.features),
        udf=computed,  # type: ignore[arg-type]  # Feast names the class of functions
        udf_string=view.query,
        mode="pandas",
        description=spec.description,
    )


def _fields(kinds: Mapping[str, str]) -> list[Field]:
    return [Field(name=name, dtype=_FEATURE_TYPES[kind]) for name, kind in kinds.items()]
