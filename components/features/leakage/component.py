"""The KFP interface of the leakage check."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def check_leakage(
    store: str,
    snapshot: str,
    feature_tables: str,
    training_set: str,
    definitions: str,
    alarm: float,
    code: str,
    force: str,
) -> NamedTuple("Outputs", [("leakage", str), ("verdict", str), ("reasons", list)]):
    """Judge whether the training set holds only what was known at decision time.

    Args:
        store: Address of the artifact store.
        snapshot: Reference of the snapshot.
        feature_tables: Reference of the feature tables.
        training_set: Reference of the training set.
        definitions: Reference of the feature definitions.
        alarm: ROC AUC above which one feature is taken for a leak.
        code: Digest of the stage's code.
        force: A nonce that runs the stage whatever the memo holds; empty for none.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.features.leakage.stage import LeakageRequest
    from gatehouse.components.features.leakage.stage import check_leakage as check

    request = LeakageRequest(
        snapshot=snapshot,
        feature_tables=feature_tables,
        training_set=training_set,
        definitions=definitions,
        alarm=alarm,
    )
    result = check(request, ArtifactStore.open(store), code=code, force=force)
    return (result.leakage, result.verdict, list(result.reasons))
