"""The KFP interface of the stage that finds earlier feature tables."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def previous_features(store: str, snapshot: str, definitions: str, project: str) -> NamedTuple(
    "Outputs", [("feature_tables", str)]
):
    """Find the earlier feature tables that those of a snapshot are added to.

    Args:
        store: Address of the artifact store.
        snapshot: Reference of the snapshot.
        definitions: Reference of the feature definitions.
        project: Name of the project.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.features.computing.previous.stage import PreviousRequest
    from gatehouse.components.features.computing.previous.stage import previous_features as find

    request = PreviousRequest(snapshot=snapshot, definitions=definitions, project=project)
    return (find(request, ArtifactStore.open(store)).feature_tables,)
