"""The KFP interface of the feature stages."""

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
    from gatehouse.components.features.stage import PreviousRequest
    from gatehouse.components.features.stage import previous_features as find

    request = PreviousRequest(snapshot=snapshot, definitions=definitions, project=project)
    return (find(request, ArtifactStore.open(store)).feature_tables,)


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
    from gatehouse.components.features.stage import ComputeRequest
    from gatehouse.components.features.stage import compute_features as compute

    request = ComputeRequest(snapshot=snapshot, definitions=definitions, project=project, parent=parent)
    result = compute(request, ArtifactStore.open(store), code=code, force=force)
    return (result.feature_tables,)


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def freshness(
    store: str, feature_tables: str, definitions: str, as_of: str, against: str, metrics: dsl.Output[dsl.Metrics]
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list)]):
    """Measure how old the newest event of every view is, and judge it by what its definition allows.

    Args:
        store: Address of the artifact store.
        feature_tables: Reference of the feature tables.
        definitions: Reference of the feature definitions.
        as_of: Time of the run, ISO 8601.
        against: What age is measured from: as_of, or clock.
        metrics: The number of stale views and the age of every view in hours for the UI.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.features.freshness.freshness import FreshnessRequest, show
    from gatehouse.components.features.freshness.freshness import freshness as measure

    request = FreshnessRequest(feature_tables=feature_tables, definitions=definitions, as_of=as_of, against=against)
    result = measure(request, ArtifactStore.open(store))
    show(result, metrics)
    return (result.verdict, list(result.reasons))


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
    from gatehouse.components.features.stage import RetrieveRequest
    from gatehouse.components.features.stage import retrieve_training_set as retrieve

    request = RetrieveRequest(
        snapshot=snapshot, feature_tables=feature_tables, definitions=definitions, service=service, as_of=as_of
    )
    result = retrieve(request, ArtifactStore.open(store), code=code, force=force)
    return (result.training_set, result.rows)


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
    from gatehouse.components.features.stage import LeakageRequest
    from gatehouse.components.features.stage import check_leakage as check

    request = LeakageRequest(
        snapshot=snapshot,
        feature_tables=feature_tables,
        training_set=training_set,
        definitions=definitions,
        alarm=alarm,
    )
    result = check(request, ArtifactStore.open(store), code=code, force=force)
    return (result.leakage, result.verdict, list(result.reasons))


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
    from gatehouse.components.features.stage import MaterializeRequest
    from gatehouse.components.features.stage import materialize as write

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
