"""The KFP interface of the stage that computes feature tables."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def compute_features(
    store: str, snapshot: str, definitions: str, project: str, parent: str, code: str, force: str
) -> NamedTuple("Outputs", [("feature_tables", str)]):
    """Compute the feature tables of a snapshot.

    Args:
        store: Address of the artifact store.
        snapshot: Reference of the snapshot.
        definitions: Reference of the feature definitions.
        project: Name of the project.
        parent: Earlier feature tables that they are added to; empty to compute all of them.
        code: Digest of the stage's code.
        force: A nonce that runs the stage whatever the memo holds; empty for none.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.features.computing.stage import ComputeRequest
    from gatehouse.components.features.computing.stage import compute_features as compute

    request = ComputeRequest(snapshot=snapshot, definitions=definitions, project=project, parent=parent)
    result = compute(request, ArtifactStore.open(store), code=code, force=force)
    return (result.feature_tables,)
