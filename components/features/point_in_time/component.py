"""The KFP interface of the stage that makes a training set."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def retrieve_training_set(
    store: str, snapshot: str, feature_tables: str, definitions: str, service: str, as_of: str, code: str, force: str
) -> NamedTuple("Outputs", [("training_set", str), ("rows", int)]):
    """Join a feature service to the entity rows, point-in-time, through Feast.

    Args:
        store: Address of the artifact store.
        snapshot: Reference of the snapshot.
        feature_tables: Reference of the feature tables.
        definitions: Reference of the feature definitions.
        service: Name of the feature service.
        as_of: Time at which labels must be known, ISO 8601.
        code: Digest of the stage's code.
        force: A nonce that runs the stage whatever the memo holds; empty for none.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.features.point_in_time.stage import RetrieveRequest
    from gatehouse.components.features.point_in_time.stage import retrieve_training_set as retrieve

    request = RetrieveRequest(
        snapshot=snapshot, feature_tables=feature_tables, definitions=definitions, service=service, as_of=as_of
    )
    result = retrieve(request, ArtifactStore.open(store), code=code, force=force)
    return (result.training_set, result.rows)
