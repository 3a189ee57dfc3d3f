"""Feast objects from the repository's YAML, so that a view's keys, freshness and features are written once."""

from pathlib import Path

from feast import Entity, FeatureView, Field, FileSource, ValueType
from feast.types import FeastType, Float32, Int64, String

from gatehouse.components.features.repository import EVENT_TIMESTAMP, read_repository

_VALUE_TYPES = {"string": ValueType.STRING, "int64": ValueType.INT64}
_KEY_TYPES: dict[str, FeastType] = {"string": String, "int64": Int64}
_FEATURE_TYPES: dict[str, FeastType] = {"numeric": Float32, "categorical": String}


def entity(folder: Path, name: str) -> Entity:
    """The Feast entity `name` of the repository in `folder`; its join key has the same name."""
    return Entity(name=name, join_keys=[name], value_type=_VALUE_TYPES[read_repository(folder).spec.entities[name]])


def feature_view(folder: Path, name: str) -> FeatureView:
    """The Feast feature view `name`, reading `data/<name>.parquet` beside the definitions."""
    repository = read_repository(folder)
    view = repository.views[name].spec
    keys = {key: repository.spec.entities[key] for key in view.entities}
    return FeatureView(
        name=name,
        entities=[entity(folder, key) for key in keys],
        ttl=view.ttl,
        schema=[
            *(Field(name=key, dtype=_KEY_TYPES[kind]) for key, kind in keys.items()),
            *(Field(name=feature, dtype=_FEATURE_TYPES[kind]) for feature, kind in view.features.items()),
        ],
        source=FileSource(
            name=f"{name}_table",
            path=str(folder / "data" / f"{name}.parquet"),
            timestamp_field=EVENT_TIMESTAMP,
            created_timestamp_column=view.created_timestamp,
        ),
    )
