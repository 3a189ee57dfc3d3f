"""Feature definitions: what a user writes in `definitions.py`, and the repository that holds it with its SQL."""

from gatehouse.features.definitions.declarations import (
    Available,
    Entity,
    FeatureService,
    FeatureView,
    LabelView,
    OnDemandView,
    Source,
)

__all__ = ["Available", "Entity", "FeatureService", "FeatureView", "LabelView", "OnDemandView", "Source"]
