"""The KFP interface of the stage that measures freshness."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.artifacts.image import image_of


@dsl.component(base_image=image_of("freshness"), packages_to_install=[], install_kfp_package=False)
def freshness(
    store: str, feature_tables: str, definitions: str, as_of: str, against: str, metrics: dsl.Output[dsl.Metrics]
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list)]):
    """Measure how old the newest event of every view is, and judge it by what its definition allows.

    Args:
        store: Address of the artifact store.
        feature_tables: Reference of the feature tables.
        definitions: Reference of the feature definitions.
        as_of: Time of the run, ISO 8601.
        against: What age is measured from: `as_of` or `clock`.

    Returns:
        verdict: pass, or fail where a view is stale.
        reasons: Which views are stale, and by how much.
        metrics: The number of stale views and the age of every view in hours for the UI.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.features.freshness.report import show
    from gatehouse.components.features.freshness.stage import FreshnessRequest
    from gatehouse.components.features.freshness.stage import freshness as measure

    request = FreshnessRequest(feature_tables=feature_tables, definitions=definitions, as_of=as_of, against=against)
    result = measure(request, ArtifactStore.open(store))
    show(result, metrics)
    return (result.verdict, list(result.reasons))
