"""The KFP interface of the stage that writes the online store."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def materialize(
    store: str,
    snapshot: str,
    feature_tables: str,
    definitions: str,
    project: str,
    service: str,
    as_of: str,
    max_skew: float,
    rewrite: bool,
) -> NamedTuple("Outputs", [("skew", float), ("cells", int), ("verdict", str), ("reasons", list), ("report", str)]):
    """Bring the online store up to date, read a sample back, and judge how much of it differs from the offline value.

    Args:
        store: Address of the artifact store.
        snapshot: Reference of the snapshot.
        feature_tables: Reference of the feature tables.
        definitions: Reference of the feature definitions.
        project: Name of the project, whose online store is written.
        service: Name of the feature service.
        as_of: Time up to which features are written, ISO 8601.
        max_skew: Share of differing values above which the verdict is fail.
        rewrite: Write everything from the beginning, also where the store was brought to a later time before.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.features.online.stage import MaterializeRequest
    from gatehouse.components.features.online.stage import materialize as write

    request = MaterializeRequest(
        snapshot=snapshot,
        feature_tables=feature_tables,
        definitions=definitions,
        project=project,
        service=service,
        as_of=as_of,
        max_skew=max_skew,
        rewrite=rewrite,
    )
    result = write(request, ArtifactStore.open(store))
    return (result.skew, result.cells, result.verdict, list(result.reasons), result.report)
