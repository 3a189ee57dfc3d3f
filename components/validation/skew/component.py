"""The KFP interface of the skew stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.artifacts.image import image_of


@dsl.component(base_image=image_of("skew"), packages_to_install=[], install_kfp_package=False)
def skew(
    store: str,
    training_set: str,
    serving: str,
    spec: str,
    code: str,
    force: str,
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    statistics: str = "{}",
) -> NamedTuple("Outputs", [("skew", str), ("verdict", str), ("reasons", list)]):
    """Compare logged serving features with a training set; skew is a verdict, and the report is written either way.

    Args:
        store: Address of the artifact store.
        training_set: Reference of the training set.
        serving: Reference of the dataset with the logged features.
        spec: Thresholds, as canonical JSON of a SkewSpec.
        code: Digest of the stage's code.
        force: A nonce that runs the stage whatever the memo holds; empty for none.
        statistics: Where statistics are computed, as canonical JSON of a StatisticsSpec.

    Returns:
        skew: Reference of the comparison.
        verdict: pass, fail or unjudged.
        reasons: Why it is no pass.
        metrics: The greatest distance and the numbers of features and anomalies for the UI.
        report: The report for the UI.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.validation.skew.report import show
    from gatehouse.components.validation.skew.stage import SkewRequest
    from gatehouse.components.validation.skew.stage import skew as run
    from gatehouse.components.validation.spec import SkewSpec, StatisticsSpec

    opened, thresholds = ArtifactStore.open(store), SkewSpec.model_validate_json(spec)
    engine = StatisticsSpec.model_validate_json(statistics)
    request = SkewRequest(training_set=training_set, serving=serving, spec=thresholds, statistics=engine, force=force)
    result = run(request, opened, code=code, force=force)
    show(result, opened, metrics, report)
    return (result.skew, result.verdict, list(result.reasons))
